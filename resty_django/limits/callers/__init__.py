"""Identification of callers: keys, client addresses, names of users, and exemptions."""
