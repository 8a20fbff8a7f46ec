"""Shared dictionaries for all processes of one machine (LMDB) or of several machines (Redis).

from resty_django.shdict import shdicts

hits = shdicts["default"]
hits.incr("page:/", 1, init=0)
hits.set("answer", 42, ttl=60)
"""

from __future__ import annotations

from .base import Change, Item, Keep, Outcome, SharedDict, Stats
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
    "Change",
    "DiskFull",
    "Item",
    "Keep",
    "NoMemory",
    "NotANumber",
    "NotFound",
    "Outcome",
    "SharedDict",
    "SharedDictError",
    "SizeChanged",
    "Stats",
    "Unavailable",
    "UnknownDict",
    "Unreadable",
    "WrongKind",
    "WrongOwner",
    "shdicts",
]
