"""The client: queues, jobs, events, and calls of the script in Redis."""
