"""Translation of redis-py errors, so that the layers above need not import redis-py."""

from __future__ import annotations

import builtins
import re
from typing import Final

from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from .errors import NOT_PERMITTED, StoreDown, StoreError, StoreFull

FAULTS: Final = (RedisError, RedisClusterException, OSError)
"""Errors that redis-py raises."""

_NO_SERVER: Final = re.compile(r"^Error -?[0-9]+ connecting to|refused|Name or service not known", re.IGNORECASE)
_NOT_NOW: Final = (ReadOnlyError, ClusterDownError, TryAgainError)
# Before Redis 7, the code of an error inside a script appears only in the text, after a dash.
_FULL_TEXT: Final = re.compile(r"(^|-)OOM\b")
_NOT_NOW_TEXT: Final = re.compile(r"(^|-)(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|BUSY)\b")


def translated(error: Exception) -> StoreError:
    """Return the `StoreError` for one of `FAULTS`."""
    text = str(error) or type(error).__name__
    if isinstance(error, OutOfMemoryError) or (isinstance(error, ResponseError) and _FULL_TEXT.search(text)):
        return StoreFull(text)
    if isinstance(error, NoPermissionError):
        return StoreError(f"{NOT_PERMITTED}: {text}")
    if isinstance(error, ResponseError) and not isinstance(error, _NOT_NOW) and not _NOT_NOW_TEXT.search(text):
        return StoreError(text)
    if isinstance(error, ConnectionError | OSError) and _NO_SERVER.search(text):
        text = f"{text.rstrip('.')}. Start Redis or Valkey there, or correct the address in the settings."
    down = StoreDown(text)
    down.timed_out = isinstance(error, TimeoutError | builtins.TimeoutError)
    return down
