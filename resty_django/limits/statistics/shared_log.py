"""Event logs in a shared dictionary, changed without holding its lock while they are packed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from resty_django.shdict import Change, Keep, SharedDict

from .events import EventLog, read_log

ATTEMPTS: Final = 5
"""The maximum number of attempts if other processes change the same log."""


def change_log(dictionary: SharedDict, key: str, change: Callable[[EventLog], EventLog], life: float) -> bool:
    """Store what `change` returns for the log under a key, for `life` seconds. It may be called several times.

    Return False if other processes always changed the log in the meantime. Raise `SharedDictError`.
    """
    for _ in range(ATTEMPTS):
        stored = dictionary.get(key)
        before = read_log(stored)
        after = change(before)
        if after == before or dictionary.update(key, partial(_swap, stored, after.packed(), life)):
            return True
    return False


def _swap(expected: Any, packed: bytes, life: float, current: Any) -> Change | Keep:
    return Change(packed, life, True) if current == expected else Keep(False)
