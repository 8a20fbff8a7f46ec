"""Limiters: a limit, its key and its store, for plain calls."""
