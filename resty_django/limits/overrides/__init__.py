"""Overrides: rows with which operators change a limit for one user, address, network or key."""
