"""The two-level cache: levels, loader, records."""
