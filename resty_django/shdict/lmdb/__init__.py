"""Shared dictionaries in the memory of one machine: no server, any number of processes."""

from __future__ import annotations

from .engine import LmdbDict

__all__ = ["LmdbDict"]
