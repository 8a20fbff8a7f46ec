"""Stored form of values in Django's cache backend.

| value | in L2 | in L1 |
|---|---|---|
| float, 64-bit integer | a number of the dictionary, which `incr` adds to | not stored |
| None, str, bool, bytes; lists and dicts of all these | head and msgpack | the value, or a copy to copy from |
| anything else | head, signature, pickle | the value if it is immutable, else the pickle |

The head consists of a mark, the time of storing and the time to live. The mark says whether the msgpack or the pickle
is compressed; a signature covers the compressed bytes, and is verified before they are decompressed. A pickle is loaded
only if its signature, over its context, head and bytes, is valid, and it has not expired according to its head. Readers
never share a mutable object.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from django.utils.safestring import SafeString

from ..storage.compression import LIMIT, Compressor, NotDecompressed, decompressed
from ..storage.records import UNREADABLE
from . import signing

PLAIN: Final = 0xC2
SIGNED: Final = 0xC3
PLAIN_COMPRESSED: Final = 0xC5
SIGNED_COMPRESSED: Final = 0xC6
"""Marks. 0xC4 is the mark of entries with tags."""
_MARKS: Final = (PLAIN, SIGNED, PLAIN_COMPRESSED, SIGNED_COMPRESSED)
_UNSIGNED: Final = (PLAIN, PLAIN_COMPRESSED)
PROTOCOL: Final = 5
"""The latest pickle protocol that all supported Python versions can read."""

SCALARS: Final = frozenset({str, bool, int, float, bytes, type(None)})
UNCHANGING: Final = SCALARS | {SafeString, Decimal, date, datetime, time, timedelta, UUID}
"""Immutable types: readers may share the same object."""
SKEW: Final = 60.0
"""Seconds by which the clocks of two machines may differ: a pickle may be loaded until this long after its expiry."""
_KEYS: Final = frozenset({str, int})
_LARGE: Final = 2**63

_HEAD: Final = struct.Struct("<Bdd")
_SIZE: Final = _HEAD.size
_DATA: Final = _SIZE + signing.SIZE
"""Offset of the pickle."""
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode

Make = Callable[[Any], Any]


class Foreign(Exception):
    """The entry was not written by this site, or cannot be read; the message is the reason."""


class L1Value(NamedTuple):
    """A value in L1. `make` converts it to the object for a reader (None: the value itself)."""

    value: Any
    make: Make | None = None


class Entry(NamedTuple):
    """An entry from L2. `value`: for the current reader; `l1_value`: for L1. `stored`: time of storing in seconds;
    `ttl`: seconds, 0: forever."""

    value: Any
    l1_value: L1Value
    stored: float
    ttl: float


class Inspected(NamedTuple):
    """An entry for the admin. `pickled`: the bytes of a pickle, which is not loaded (0: not a pickle)."""

    value: Any
    stored: float
    pickled: int = 0


def encode(
    context: bytes, value: Any, stored: float, ttl: float, compressor: Compressor | None = None
) -> int | float | bytes:
    """Return the entry for L2. `context`: the data to which the signature binds a pickle.

    Raise pickle's errors for values that it does not support.
    """
    if type(value) is float or (type(value) is int and -_LARGE <= value < _LARGE):
        return value
    return encode_as_bytes(context, value, stored, ttl, compressor)


def encode_as_bytes(
    context: bytes, value: Any, stored: float, ttl: float, compressor: Compressor | None = None
) -> bytes:
    """Like `encode`, but return bytes for numbers, too."""
    body = _plain(value)
    data = pickle.dumps(value, PROTOCOL) if body is None else body
    smaller = None if compressor is None else compressor.compressed(data)
    if body is not None:
        mark = PLAIN if smaller is None else PLAIN_COMPRESSED
        return _HEAD.pack(mark, stored, ttl) + (smaller or body)
    mark = SIGNED if smaller is None else SIGNED_COMPRESSED
    return _signed(context, _HEAD.pack(mark, stored, ttl), smaller or data)


def decode(context: bytes, raw: object, now: float, limit: int = LIMIT) -> Entry:
    """Return the value that `encode` received with this context; numbers are not encoded. Raise `Foreign`.

    `now`: the current time of the clock used for `stored`. `limit`: the largest value that is decompressed. An expired
    pickle that was stored again counts as foreign.
    """
    mark, stored, ttl = _head(raw)
    if mark in _UNSIGNED:
        value, l1_value = _from_plain(_body(mark, raw[_SIZE:], limit))  # type: ignore[index]
    else:
        data = _body(mark, _verified(context, raw), limit)
        if ttl and stored + ttl + SKEW < now:
            raise Foreign("it had expired before it was read")
        value, l1_value = _from_pickle(data)
    return Entry(value, l1_value, stored, ttl)


def inspect(raw: object, limit: int = LIMIT) -> Inspected:
    """Return the contents of an entry, without loading a pickle. Raise `Foreign`."""
    if type(raw) is int or type(raw) is float:
        return Inspected(raw, 0.0)
    mark, stored, _ = _head(raw)
    body = raw[_SIZE:]  # type: ignore[index]
    if mark not in _UNSIGNED:
        return Inspected(None, stored, max(1, len(body) - signing.SIZE))
    return Inspected(_from_plain(_body(mark, body, limit))[0], stored)


def renewed(context: bytes, raw: object, stored: float, ttl: float) -> Any:
    """Return the entry with another time to live. Raise `Foreign`.

    A pickle is signed again, but only if its signature is valid.
    """
    if type(raw) is int or type(raw) is float:
        return raw
    mark = _head(raw)[0]
    head = _HEAD.pack(mark, stored, ttl)
    return head + raw[_SIZE:] if mark in _UNSIGNED else _signed(context, head, _verified(context, raw))  # type: ignore[index]


def _head(raw: object) -> tuple[int, float, float]:
    if type(raw) is bytes and len(raw) > _SIZE and raw[0] in _MARKS:
        mark, stored, ttl = _HEAD.unpack_from(raw)
        if 0.0 <= ttl < math.inf and -math.inf < stored < math.inf:
            return mark, stored, ttl
    raise Foreign("it is not an entry of this cache")


def _body(mark: int, data: bytes, limit: int) -> bytes:
    """Return the msgpack or the pickle. Raise `Foreign`."""
    if mark in (PLAIN, SIGNED):
        return data
    try:
        return decompressed(data, limit)
    except NotDecompressed as error:
        raise Foreign(f"it cannot be decompressed: {error}") from None


def _signed(context: bytes, head: bytes, data: bytes) -> bytes:
    return head + signing.sign(context + head, data) + data


def _verified(context: bytes, raw: Any) -> bytes:
    """Return the pickle of an entry. Raise `Foreign` unless this site has written it for this context and head."""
    head, signature, data = raw[:_SIZE], raw[_SIZE:_DATA], raw[_DATA:]
    if not signing.is_signed(signature, context + head, data):
        raise Foreign("its signature is invalid")
    return data  # type: ignore[no-any-return]


def _plain(value: Any) -> bytes | None:
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
        return set(map(type, value)) <= _KEYS and _all_plain(value.values())
    return kind is list and _all_plain(value)


def _all_plain(values: Any) -> bool:
    return set(map(type, values)) <= SCALARS or all(map(_is_plain, values))


def _from_plain(body: bytes) -> tuple[Any, L1Value]:
    try:
        value = _unpack(body)
    except UNREADABLE as error:
        raise Foreign(f"it cannot be read: {error}") from error
    if type(value) is dict and set(map(type, value.values())) <= SCALARS:
        return value, L1Value(dict(value), dict.copy)
    if type(value) is list and set(map(type, value)) <= SCALARS:
        return value, L1Value(list(value), list.copy)
    return value, L1Value(value) if type(value) in SCALARS else L1Value(body, _unpack)


def _from_pickle(data: bytes) -> tuple[Any, L1Value]:
    try:
        value = pickle.loads(data)  # noqa: S301
    except Exception as error:
        raise Foreign(f"it cannot be loaded: {type(error).__name__}: {error}") from error
    kind = type(value)
    unchanging = kind in UNCHANGING or (kind is tuple and set(map(type, value)) <= UNCHANGING)
    return value, L1Value(value) if unchanging else L1Value(data, pickle.loads)
