"""The two-level cache: its levels, its options and its records."""
