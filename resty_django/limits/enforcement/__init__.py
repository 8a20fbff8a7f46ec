"""Enforcement of limits on requests: keys, exemptions, headers, responses."""
