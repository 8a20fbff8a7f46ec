"""Broadcasts of invalidations to other processes."""
