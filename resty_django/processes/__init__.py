"""Forks, and child processes of commands."""
