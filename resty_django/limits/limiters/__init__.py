"""Limiters: limits with keys and a store, for use in plain code."""
