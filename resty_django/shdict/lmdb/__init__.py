"""Shared dictionaries in the memory of one machine, without a server."""

from __future__ import annotations

from .engine import LmdbDict

__all__ = ["LmdbDict"]
