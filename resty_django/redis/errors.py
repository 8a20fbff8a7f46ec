"""What can go wrong between us and Redis, in words of our own: floors above do not import redis-py."""

from __future__ import annotations

import re
from typing import Final

from redis.exceptions import (
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)


class StoreError(Exception):
    """Redis refused a call. The error of redis-py is the `__cause__`."""


class StoreDown(StoreError):
    """The server cannot be reached, does not answer in time, or may not be written to now. Later it may work.

    Where the connection broke or the answer came too late, the call may have been carried out all the same.
    """


class StoreFull(StoreError):
    """The server has used all the memory that it may, and its policy throws nothing out. Nothing was changed."""


FAULTS: Final = (RedisError, RedisClusterException, OSError)
"""What redis-py raises."""

_NOT_NOW: Final = (ReadOnlyError, ClusterDownError, TryAgainError)
# Before Redis 7 the code of an error inside a script is found in the text alone, after a dash.
_FULL_TEXT: Final = re.compile(r"(^|-)OOM\b")
_NOT_NOW_TEXT: Final = re.compile(r"(^|-)(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|BUSY)\b")


def translated(error: Exception) -> StoreError:
    """Our error for one of `FAULTS`."""
    text = str(error) or type(error).__name__
    if isinstance(error, OutOfMemoryError) or (isinstance(error, ResponseError) and _FULL_TEXT.search(text)):
        return StoreFull(text)
    if isinstance(error, NoPermissionError):
        return StoreError(f"the user of Redis may not do this: {text}")
    if isinstance(error, ResponseError) and not isinstance(error, _NOT_NOW) and not _NOT_NOW_TEXT.search(text):
        return StoreError(text)
    return StoreDown(text)


__all__ = ["FAULTS", "StoreDown", "StoreError", "StoreFull", "translated"]
