"""Policies, limits that operators edit: registry, matching, export."""
