"""Specifications of policies, overrides and bans as plain values, with their validation."""
