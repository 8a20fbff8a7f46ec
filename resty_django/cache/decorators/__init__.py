"""Decorators of functions and views."""
