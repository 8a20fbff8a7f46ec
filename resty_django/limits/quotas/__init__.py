"""Quotas: units per calendar period, counted in database rows that are reserved in blocks."""
