"""The two-level cache: its levels and its options."""
