"""Invalidation of values in other processes."""
