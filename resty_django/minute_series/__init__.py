"""Counts by minute of all processes, in a shared dictionary: `records` has their format, `series` adds and flushes."""
