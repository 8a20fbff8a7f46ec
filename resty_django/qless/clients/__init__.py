"""The client: queues, jobs, events, and calls to the Lua script in Redis."""
