"""The overview of all queues, and the page of a queue."""
