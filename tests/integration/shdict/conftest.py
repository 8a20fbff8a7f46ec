"""What the tests of shared dictionaries share."""

from __future__ import annotations

from tests.dictionaries import calls, clock, dictionary, redis_cache, small

__all__ = ["calls", "clock", "dictionary", "redis_cache", "small"]
