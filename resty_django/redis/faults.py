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


def translated(error: Exception) -> StoreError:
    """Return the `StoreError` for one of `FAULTS`."""
    text = str(error) or type(error).__name__
    if isinstance(error, NoPermissionError):
        return StoreError(f"{NOT_PERMITTED}: {text}")
    if isinstance(error, ResponseError):
        # Before Redis 7, the code of an error inside a script appears only in the text, after a dash.
        if isinstance(error, OutOfMemoryError) or re.search(r"(^|-)OOM\b", text):
            return StoreFull(text)
        if not isinstance(error, ReadOnlyError | ClusterDownError | TryAgainError) and not re.search(
            r"(^|-)(READONLY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|BUSY)\b", text
        ):
            return StoreError(text)
    if isinstance(error, ConnectionError | OSError) and re.search(
        r"^Error -?[0-9]+ connecting to|refused|Name or service not known", text, re.IGNORECASE
    ):
        text = f"{text.rstrip('.')}. Start Redis or Valkey there, or correct the address in the settings."
    down = StoreDown(text)
    down.timed_out = isinstance(error, TimeoutError | builtins.TimeoutError)
    return down
