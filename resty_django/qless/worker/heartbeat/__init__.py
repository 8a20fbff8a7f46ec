"""Heartbeats of a worker process: for the leases of its jobs, for a held interpreter, and for the process itself."""
