"""Caching decorators for functions and views."""
