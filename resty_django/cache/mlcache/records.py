"""Values and keys as L2 holds them. Pure.

A record is a head (layout, bits, moment of storing, time to live) and the value as msgpack. It is bytes, so that a
dictionary keeps it as it is. `plain` converts a value before it is stored, so that it is the same whichever level it
comes from.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ..errors import BadKey, BadValue

LAYOUT: Final = 0xC1
"""The first byte of a record: one that msgpack never uses."""
NEGATIVE: Final = 1
STALE: Final = 2

SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_BASES: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)
_HEAD: Final = struct.Struct("<BBdd")
_read_head: Final = _HEAD.unpack_from
_SIZE: Final = _HEAD.size
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode


UNREADABLE: Final = (struct.error, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""The errors of decoding bytes that are not a record, such as texts that are not UTF-8 and lists nested too deeply."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """What L2 has for a key. `stored`: the moment in seconds; `ttl`: seconds, 0 forever; `stale`: resurrected."""

    value: Any
    stored: float
    ttl: float
    stale: bool


def encode(value: Any, stored: float, ttl: float, stale: bool) -> bytes:
    """Return a record of a value that `plain` has returned. Raise `BadValue`."""
    bits = STALE if stale else 0
    if value is None:
        return _HEAD.pack(LAYOUT, bits | NEGATIVE, stored, ttl)
    try:
        return _HEAD.pack(LAYOUT, bits, stored, ttl) + _pack(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadValue(f"A {type(value).__name__} cannot be written as msgpack: {error}.") from None


def decode(raw: Any) -> Record | None:
    """Return what `encode` was given; None for anything else."""
    try:
        layout, bits, stored, ttl = _read_head(raw)
        if layout != LAYOUT or not (0.0 <= ttl < math.inf and -math.inf < stored < math.inf):
            return None
        return Record(None if bits & NEGATIVE else _unpack(raw[_SIZE:]), stored, ttl, bits & STALE > 0)
    except UNREADABLE:
        return None


def plain(value: Any) -> Any:
    """Return the value as it comes back from L2: a tuple becomes a list, and a subclass of a text or number its base.

    Raise `BadValue` for what is neither None, a text, a number, True or False, bytes, nor a list or dict of these.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise BadValue(f"A {type(value).__name__} that holds itself, or is too deep, cannot be cached.") from None


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        if set(map(type, value.values())) <= SCALARS and set(map(type, value)) <= SCALARS:
            return value
        return {_scalar(key): _plain(item) for key, item in value.items()}
    if kind is list or isinstance(value, list | tuple):
        if set(map(type, value)) <= SCALARS:
            return value if kind is list else list(value)
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return _plain(dict(value))
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if type(value) in SCALARS:
        return value
    for base, convert in _BASES:
        if isinstance(value, base):
            return convert(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadValue(
        f"A value of type {type(value).__name__} cannot be cached as it is. Give None, a text, a number, True or "
        "False, bytes, or lists and dicts of these, or give the cache a serializer."
    )


def key_text(key: object) -> str:
    """Return a key as text: bytes as UTF-8, anything else by `str`. Raise `BadKey`."""
    if isinstance(key, str):
        text = str.__str__(key)
    elif isinstance(key, bytes):
        text = key.decode("utf-8", "surrogateescape")
    elif key is None:
        raise BadKey("The key is None. Give a text.")
    else:
        text = str(key)
    if not text:
        raise BadKey("The key is empty. Give a text of at least one character.")
    return text
