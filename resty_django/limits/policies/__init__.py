"""Policies, which are limits that operators can edit: registry, matching, export."""
