"""Counts of hits and misses, by cache and minute."""
