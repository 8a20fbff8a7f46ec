"""Counts of decisions, by limit and minute."""
