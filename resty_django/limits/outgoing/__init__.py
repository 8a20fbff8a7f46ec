"""Limits for calls to other services: a transport for httpx, and an adapter for requests.

They share a rate over all processes, and obey the header `Retry-After` of a 429 or 503.
"""
