"""Shared dictionaries for all processes of one machine (LMDB) or of several machines (Redis).

from resty_django.shdict import shdicts

hits = shdicts["default"]
hits.incr("page:/", 1, init=0)
hits.set("answer", 42, ttl=60)
"""

from __future__ import annotations

from .base import DictStats, Item, Keep, SharedDict, StoreOutcome, Update
from .errors import (
    BadKey,
    BadValue,
    DiskFull,
    NoMemory,
    NotANumber,
    NotFound,
    SharedDictError,
    SizeChanged,
    Unavailable,
    Unreadable,
    WrongKind,
    WrongOwner,
)
from .handler import UnknownDict, shdicts

__all__ = [
    "BadKey",
    "BadValue",
    "DictStats",
    "DiskFull",
    "Item",
    "Keep",
    "NoMemory",
    "NotANumber",
    "NotFound",
    "SharedDict",
    "SharedDictError",
    "SizeChanged",
    "StoreOutcome",
    "Unavailable",
    "UnknownDict",
    "Unreadable",
    "Update",
    "WrongKind",
    "WrongOwner",
    "shdicts",
]
