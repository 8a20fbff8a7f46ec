"""Per-minute counts of all processes in a shared dictionary: `records` has the format, `series` adds and flushes."""
