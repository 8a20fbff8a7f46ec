"""Shared dictionaries on Redis or Valkey, for several machines."""

from __future__ import annotations

from .engine import RedisDict

__all__ = ["RedisDict"]
