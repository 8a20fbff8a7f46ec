"""Stored form of values and keys in L2. Pure.

A record consists of a head (layout, bits, time of storing, time to live), the duration of its callback if its cache
recomputes early, its tags with their versions, if any, and the value as msgpack, which may be compressed. It is bytes,
which a dictionary stores unchanged. `plain` converts a value before it is stored, so that its type does not depend on
the level that it comes from. The entries of Django's cache backend (`backend.entries`) are records of another kind.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from resty_django.text import builtin_value

from ..errors import BadKey, BadValue
from .compression import MAX_DECOMPRESSED_BYTES, Compressor, decompressed
from .tag_encoding import Versions, packed, unpacked

LAYOUT: Final = 0xC1
"""The first byte of a record, which msgpack never uses."""
NEGATIVE: Final = 1
STALE: Final = 2
COMPRESSED: Final = 4
TIMED: Final = 8
ENTRY: Final = 16
"""Bit of all entries of Django's cache backend, which no `MLCache` reads."""
SIGNED: Final = 32
"""Bit of an entry with a signature and a pickle."""
TAGGED: Final = 64

SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_HEAD: Final = struct.Struct("<BBdd")
_read_head: Final = _HEAD.unpack_from
_TOOK: Final = struct.Struct("<f")
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode


UNREADABLE: Final = (struct.error, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of decoding bytes that are not a record, such as invalid UTF-8 or lists that are nested too deeply."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record in L2. `stored`: time of storing in seconds; `ttl`: seconds, 0: forever; `stale`: resurrected. `tags`:
    the versions of its tags before its source was called (None: no tags). `took`: seconds of its callback (0:
    unknown)."""

    value: object
    stored: float
    ttl: float
    stale: bool
    tags: Versions | None = None
    took: float = 0.0

    def remaining(self, now: float) -> float:
        """Return the seconds until the record expires. Not for records that live forever."""
        return self.ttl - max(0.0, now - self.stored)


class StoredHead(msgspec.Struct, frozen=True, gc=False):
    """The part of a record in front of its value. `end`: the position of the value. Other fields: see `Record`."""

    bits: int
    stored: float
    ttl: float
    took: float
    tags: Versions | None
    end: int


def packed_head(bits: int, stored: float, ttl: float, tags: Versions | None, took: float = 0.0) -> bytes:
    """Return the bytes in front of a value. The bits of tags and of `took` are added."""
    block = b""
    if took:
        bits |= TIMED
        block = _TOOK.pack(took)
    if tags:
        bits |= TAGGED
        block += packed(tags)
    return _HEAD.pack(LAYOUT, bits, stored, ttl) + block


def unpacked_head(raw: bytes) -> StoredHead:
    """Return the head of a record. Raise one of `UNREADABLE` for any other bytes."""
    layout, bits, stored, ttl = _read_head(raw)
    if layout != LAYOUT or not (0.0 <= ttl < math.inf and -math.inf < stored < math.inf):
        raise ValueError("it is not a record")
    took, end = 0.0, _HEAD.size
    if bits & TIMED:
        (took,) = _TOOK.unpack_from(raw, end)
        end += _TOOK.size
        if not 0.0 <= took < math.inf:
            raise ValueError("the duration of its callback is invalid")
    tags, end = unpacked(raw, end) if bits & TAGGED else (None, end)
    return StoredHead(bits, stored, ttl, took, tags, end)


def encode(
    value: object,
    stored: float,
    ttl: float,
    stale: bool,
    tags: Versions | None = None,
    compressor: Compressor | None = None,
    took: float = 0.0,
) -> bytes:
    """Return the record for a value returned by `plain`. Raise `BadValue`."""
    bits = STALE if stale else 0
    if value is None:
        return packed_head(bits | NEGATIVE, stored, ttl, tags, took)
    try:
        body = _pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadValue(f"A {type(value).__name__} cannot be written as msgpack: {error}.") from None
    smaller = None if compressor is None or len(body) <= compressor.above else compressor.compressed(body)
    if smaller is not None:
        bits |= COMPRESSED
        body = smaller
    return packed_head(bits, stored, ttl, tags, took) + body


def decode(raw: Any, unpack: Callable[[bytes], Any] = _unpack, limit: int = MAX_DECOMPRESSED_BYTES) -> Record | None:
    """Return the record that `encode` created; None for any other bytes.

    `unpack`: decodes msgpack; it may raise the errors in `UNREADABLE`. `limit`: the largest value that is decompressed.
    """
    try:
        layout, bits, stored, ttl = _read_head(raw)
        if layout == LAYOUT and not bits and 0.0 <= ttl < math.inf and -math.inf < stored < math.inf:
            return Record(unpack(raw[_HEAD.size :]), stored, ttl, False)  # most records; see `GuardedDict.get`
        head = unpacked_head(raw)
        if head.bits & ENTRY:
            return None
        body = decompressed(raw[head.end :], limit) if head.bits & COMPRESSED else raw[head.end :]
        value = None if head.bits & NEGATIVE else unpack(body)
        return Record(value, head.stored, head.ttl, head.bits & STALE > 0, head.tags, head.took)
    except UNREADABLE:
        return None


def stored_at(raw: bytes) -> float:
    """Return the time of storing of a record that `encode` returned."""
    stored: float = _read_head(raw)[2]
    return stored


def plain(value: Any) -> Any:
    """Return the value as L2 returns it: tuples become lists, and subclasses of str and numbers their base type.

    Raise `BadValue` for anything but None, str, numbers, bool, bytes, and lists and dicts of these.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    try:
        if kind is dict:
            if set(map(type, value.values())) <= SCALARS and set(map(type, value)) <= SCALARS:
                return value
            return {_scalar(key): plain(item) for key, item in value.items()}
        if kind is list or isinstance(value, list | tuple):
            if set(map(type, value)) <= SCALARS:
                return value if kind is list else list(value)
            return [plain(item) for item in value]
        return plain(dict(value)) if isinstance(value, dict) else _scalar(value)
    except RecursionError:
        raise BadValue(f"A {kind.__name__} that contains itself or is too deep cannot be cached. Flatten it.") from None


def _scalar(value: object) -> Any:
    if type(value) in SCALARS:
        return value
    converted = base_value(value)
    if converted is None:
        raise BadValue(
            f"A value of type {type(value).__name__} cannot be cached. Use None, str, numbers, bool, bytes, or "
            "lists and dicts of these, or set a serializer for the cache."
        )
    return converted


def base_value(value: object) -> Any:
    """Return a str, a number or bytes as its base type, and what contains bytes as bytes; None for anything else."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return builtin_value(value)


def key_text(key: object) -> str:
    """Return a key as str: bytes are decoded as UTF-8, other types converted with `str()`. Raise `BadKey`."""
    if isinstance(key, str):
        text = str.__str__(key)
    elif isinstance(key, bytes):
        text = key.decode("utf-8", "surrogateescape")
    elif key is None:
        raise BadKey("The key is None. Use a str.")
    else:
        text = str(key)
    if not text:
        raise BadKey("The key is empty. Use a str of at least one character.")
    return text
