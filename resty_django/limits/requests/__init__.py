"""Limits of requests: what applies to a request, its check, the refusal and the header fields."""
