"""Shared dictionaries on a Redis or Valkey: for many machines, or for sites that have one anyway."""

from __future__ import annotations

from .engine import RedisDict

__all__ = ["RedisDict"]
