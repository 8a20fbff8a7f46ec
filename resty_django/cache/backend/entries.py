"""Stored form of values in Django's cache backend.

| value | in L2 | in L1 |
|---|---|---|
| float, 64-bit integer | a number of the dictionary, which `incr` adds to | not stored |
| None, str, bool, bytes; lists and dicts of all these | head and msgpack | the value, or a copy to copy from |
| anything else | head, signature, pickle | the value if it is immutable, else the pickle |

An entry has the same head as a record (`storage.records`), with the tags, if any; a number with tags becomes msgpack,
so that `incr` refuses it. A signature covers the compressed bytes, and is verified before they are decompressed. A
pickle is loaded only if its signature, over its context, head and bytes, is valid, and it has not expired according to
its head. Readers never share a mutable object.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from django.utils.safestring import SafeString

from ..storage.compression import MAX_DECOMPRESSED_BYTES, Compressor, NotDecompressed, decompressed
from ..storage.records import (
    COMPRESSED,
    ENTRY,
    SCALARS,
    SIGNED,
    TAGGED,
    UNREADABLE,
    StoredHead,
    packed_head,
    unpacked_head,
)
from ..storage.tag_encoding import Versions
from . import signing

UNCHANGING: Final = SCALARS | {SafeString, Decimal, date, datetime, time, timedelta, UUID}
"""Immutable types: readers may share the same object."""
MAX_CLOCK_SKEW_SECONDS: Final = 60.0
"""Difference of the clocks of two machines: a pickle may be loaded until this long after its expiry."""
_LARGE: Final = 2**63

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode

Make = Callable[[Any], object]


class Foreign(Exception):
    """The entry was not written by this site, or cannot be read; the message is the reason."""


class L1Value(NamedTuple):
    """A value in L1. `make` converts it to the object for a reader (None: the value itself)."""

    value: Any
    make: Make | None = None

    def for_reader(self) -> Any:
        return self.value if self.make is None else self.make(self.value)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry from L2. `value`: for the current reader. `data`: the bytes from which `load` makes the value again;
    numbers have none. `stored`: time of storing in seconds; `ttl`: seconds, 0: forever. `tags`: their versions when it
    was stored."""

    value: Any
    data: bytes = b""
    load: Make | None = None
    stored: float = 0.0
    ttl: float = 0.0
    tags: Versions | None = None

    def for_l1(self) -> L1Value | None:
        """Return the value for L1, before the reader gets it and may change it; None for a number."""
        value, kind = self.value, type(self.value)
        if self.load is None:
            return None
        if kind in UNCHANGING or (kind is tuple and set(map(type, value)) <= UNCHANGING):
            return L1Value(value)
        parts = value.values() if kind is dict else value if kind is list else None
        if parts is None or self.load is not _unpack or not set(map(type, parts)) <= SCALARS:
            return L1Value(self.data, self.load)  # the keys in a pickle may be mutable
        return L1Value(value.copy(), kind.copy)


class Inspected(NamedTuple):
    """An entry for the admin. `pickled`: the bytes of a pickle, which is not loaded (0: not a pickle)."""

    value: Any
    stored: float
    pickled: int = 0


def encode(
    context: bytes,
    value: object,
    stored: float,
    ttl: float,
    versions: Versions | None = None,
    compressor: Compressor | None = None,
) -> int | float | bytes:
    """Return the entry for L2. `context`: the data to which the signature binds a pickle. `versions`: of its tags.

    Raise pickle's errors for values that it does not support.
    """
    if not versions and (type(value) is float or (type(value) is int and -_LARGE <= value < _LARGE)):
        return value
    body, bits = _plain(value), ENTRY
    if body is None:
        body, bits = pickle.dumps(value, protocol=5), ENTRY | SIGNED
    smaller = None if compressor is None or len(body) <= compressor.above else compressor.compressed(body)
    if smaller is not None:
        body, bits = smaller, bits | COMPRESSED
    head = packed_head(bits, stored, ttl, versions)
    return head + signing.sign(context + head, body) + body if bits & SIGNED else head + body


def decode(context: bytes, raw: object, now: float, limit: int = MAX_DECOMPRESSED_BYTES) -> Entry:
    """Return the value that `encode` received with this context. Raise `Foreign`.

    `now`: the current time of the clock used for `stored`. `limit`: the largest value that is decompressed. An expired
    pickle that was stored again counts as foreign.
    """
    if type(raw) is int or type(raw) is float:
        return Entry(raw)
    entry = _bytes_of(raw)
    head = _head(entry)
    is_pickle = head.bits & SIGNED
    data = _verified(context, entry, head.end) if is_pickle else entry[head.end :]
    if head.bits & COMPRESSED:
        data = _decompressed(data, limit)
    if is_pickle and head.ttl and head.stored + head.ttl + MAX_CLOCK_SKEW_SECONDS < now:
        raise Foreign("it had expired before it was read")
    load: Make = pickle.loads if is_pickle else _unpack
    return Entry(_loaded(load, data), data, load, head.stored, head.ttl, head.tags)


def inspect(raw: object, limit: int = MAX_DECOMPRESSED_BYTES) -> Inspected:
    """Return the contents of an entry, without loading a pickle. Raise `Foreign`."""
    if type(raw) is int or type(raw) is float:
        return Inspected(raw, 0.0)
    entry = _bytes_of(raw)
    head = _head(entry)
    data = entry[head.end :]
    if head.bits & SIGNED:
        return Inspected(None, head.stored, max(1, len(data) - signing.SIGNATURE_BYTES))
    return Inspected(_loaded(_unpack, _decompressed(data, limit) if head.bits & COMPRESSED else data), head.stored)


def tags_of(raw: object) -> Versions | None:
    """Return the versions of the tags of an entry; None without tags. Raise `Foreign`."""
    return _head(raw).tags if type(raw) is bytes and len(raw) > 1 and raw[1] & TAGGED else None


def renewed(context: bytes, raw: object, stored: float, ttl: float) -> int | float | bytes:
    """Return the entry with another time to live. Raise `Foreign`.

    A pickle is signed again, but only if its signature is valid.
    """
    if type(raw) is int or type(raw) is float:
        return raw
    entry = _bytes_of(raw)
    head = _head(entry)
    new_head = packed_head(head.bits & (ENTRY | SIGNED | COMPRESSED), stored, ttl, head.tags)
    if not head.bits & SIGNED:
        return new_head + entry[head.end :]
    data = _verified(context, entry, head.end)
    return new_head + signing.sign(context + new_head, data) + data


def _bytes_of(raw: object) -> bytes:
    if not isinstance(raw, bytes):
        raise Foreign("it is not an entry of this cache")
    return raw


def _head(entry: bytes) -> StoredHead:
    """Return the head of an entry. Raise `Foreign`."""
    try:
        head = unpacked_head(entry)
    except UNREADABLE as error:
        raise Foreign("it is not an entry of this cache") from error
    if not head.bits & ENTRY:
        raise Foreign("it is not an entry of this cache")
    return head


def _decompressed(data: bytes, limit: int) -> bytes:
    """Return the msgpack or the pickle. Raise `Foreign`."""
    try:
        return decompressed(data, limit)
    except NotDecompressed as error:
        raise Foreign(f"it cannot be decompressed: {error}") from None


def _verified(context: bytes, entry: bytes, end: int) -> bytes:
    """Return the pickle of an entry. Raise `Foreign` unless this site has written it for this context and head, which
    has this `end`."""
    start = end + signing.SIGNATURE_BYTES
    if not signing.is_signed(entry[end:start], context + entry[:end], entry[start:]):
        raise Foreign("its signature is invalid")
    return entry[start:]


def _plain(value: object) -> bytes | None:
    """Return the value as msgpack; None if decoding would not return an equal value."""
    try:
        return _pack(value) if _is_plain(value) else None
    except (ValueError, OverflowError, RecursionError):  # a lone surrogate, a large number, a list that contains itself
        return None


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict:
        return set(map(type, value)) <= {str, int} and _all_plain(value.values())
    return kind is list and _all_plain(value)


def _all_plain(values: Any) -> bool:
    return set(map(type, values)) <= SCALARS or all(map(_is_plain, values))


def _loaded(load: Make, data: bytes) -> Any:
    """Return the value of a msgpack or a pickle. Raise `Foreign`."""
    try:
        return load(data)
    except Exception as error:
        raise Foreign(f"it cannot be loaded: {type(error).__name__}: {error}") from error
