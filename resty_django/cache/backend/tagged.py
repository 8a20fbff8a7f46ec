"""Entries with tags: a mark, the tags with their versions, and an entry, whose signature covers the tags, too."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..storage.compression import LIMIT, Compressor
from ..storage.records import UNREADABLE
from ..storage.tag_encoding import Versions, packed, unpacked
from . import entries
from .entries import Entry, Foreign

MARK: Final = b"\xc4"


class TaggedEntry(NamedTuple):
    """The parts of an entry with tags. `block`: the tags as stored."""

    versions: Versions
    block: bytes
    entry: bytes


def is_tagged(raw: object) -> bool:
    """Return whether the bytes in L2 may be an entry with tags."""
    return type(raw) is bytes and raw[:1] == MARK


def encode(
    context: bytes, value: Any, stored: float, ttl: float, versions: Versions, compressor: Compressor | None = None
) -> bytes:
    """Return the entry for L2; see `entries.encode`. A number becomes bytes, too, so that `incr` refuses it."""
    block = packed(versions)
    return MARK + block + entries.encode_as_bytes(context + block, value, stored, ttl, compressor)


def split(raw: bytes) -> TaggedEntry:
    """Return the parts of an entry. Raise `Foreign`."""
    try:
        versions, end = unpacked(raw, len(MARK))
    except UNREADABLE as error:
        raise Foreign(f"its tags cannot be read: {error}") from error
    return TaggedEntry(versions, raw[len(MARK) : end], raw[end:])


def decode(context: bytes, tagged: TaggedEntry, now: float, limit: int = LIMIT) -> Entry:
    """Return the value; see `entries.decode`. Raise `Foreign`."""
    return entries.decode(context + tagged.block, tagged.entry, now, limit)


def renewed(context: bytes, raw: bytes, stored: float, ttl: float) -> bytes:
    """Return the entry with another time to live; see `entries.renewed`. Raise `Foreign`."""
    tagged = split(raw)
    entry: bytes = entries.renewed(context + tagged.block, tagged.entry, stored, ttl)
    return MARK + tagged.block + entry
