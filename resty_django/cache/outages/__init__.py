"""Outages of the stores of caches: circuit breakers, and what replaces a store while it is down."""
