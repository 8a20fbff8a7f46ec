"""Values as Django's cache backend holds them.

| value | in L2 | in L1 |
|---|---|---|
| a float, a whole number of 64 bits | a number of the dictionary, which `incr` adds to | never |
| None, text, True, False, bytes; lists and dicts of all these | head and msgpack | the value, or what to copy it from |
| anything else | head, signature, pickle | the value where nobody can change it, else the pickle |

The head is a mark, the moment of storing and the time to live. A pickle is loaded only where its signature, over its
place and its bytes, is right. No two readers get one object that can be changed.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from django.utils.safestring import SafeString

from . import signing

PLAIN: Final = 0xC2
SIGNED: Final = 0xC3
PROTOCOL: Final = 5
"""The newest pickle that all supported versions of Python can read."""

SCALARS: Final = frozenset({str, bool, int, float, bytes, type(None)})
UNCHANGING: Final = SCALARS | {SafeString, Decimal, date, datetime, time, timedelta, UUID}
"""Types that nobody can change, so that all readers may have the same object."""
_KEYS: Final = frozenset({str, int})
_LARGE: Final = 2**63

_HEAD: Final = struct.Struct("<Bdd")
_SIZE: Final = _HEAD.size
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode

Make = Callable[[Any], Any]


class Foreign(Exception):
    """An entry that this site has not written, or cannot read; the text is the reason."""


class Shown(NamedTuple):
    """A value as L1 keeps it. `make` makes of it what a reader gets (None: it is that itself)."""

    value: Any
    make: Make | None = None


class Entry(NamedTuple):
    """What L2 knows of a key. `value`: for the reader who asks now; `shown`: for L1. `stored`: the moment in seconds;
    `ttl`: seconds, 0 for ever."""

    value: Any
    shown: Shown
    stored: float
    ttl: float


class Seen(NamedTuple):
    """An entry as people may look at it. `pickled`: bytes of a pickle, which is not loaded (0: it is none)."""

    value: Any
    stored: float
    pickled: int = 0


def encode(place: bytes, value: Any, stored: float, ttl: float) -> int | float | bytes:
    """What L2 holds for the value. `place`: what the signature of a pickle binds it to.

    Raises what pickle raises for a value that it does not know.
    """
    if type(value) is float or (type(value) is int and -_LARGE <= value < _LARGE):
        return value
    body = _plain(value)
    if body is not None:
        return _HEAD.pack(PLAIN, stored, ttl) + body
    data = pickle.dumps(value, PROTOCOL)
    return _HEAD.pack(SIGNED, stored, ttl) + signing.sign(place, data) + data


def decode(place: bytes, raw: object) -> Entry:
    """What `encode` was given with this place, of anything but a number. Raises `Foreign`."""
    mark, stored, ttl = _head(raw)
    body = raw[_SIZE:]  # type: ignore[index]
    value, shown = _from_plain(body) if mark == PLAIN else _from_signed(place, body)
    return Entry(value, shown, stored, ttl)


def seen(raw: object) -> Seen:
    """What an entry holds, without running anything. Raises `Foreign`."""
    if type(raw) is int or type(raw) is float:
        return Seen(raw, 0.0)
    mark, stored, _ = _head(raw)
    body = raw[_SIZE:]  # type: ignore[index]
    if mark == SIGNED:
        return Seen(None, stored, max(1, len(body) - signing.SIZE))
    return Seen(_from_plain(body)[0], stored)


def renewed(raw: object, stored: float, ttl: float) -> Any:
    """The same entry with another time to live. Raises `Foreign`."""
    if type(raw) is int or type(raw) is float:
        return raw
    return _HEAD.pack(_head(raw)[0], stored, ttl) + raw[_SIZE:]  # type: ignore[index]


def _head(raw: object) -> tuple[int, float, float]:
    if type(raw) is bytes and len(raw) > _SIZE and raw[0] in (PLAIN, SIGNED):
        return _HEAD.unpack_from(raw)
    raise Foreign("it is no entry of this cache")


def _plain(value: Any) -> bytes | None:
    """The value as msgpack; None where it would not come back as it is."""
    try:
        return _pack(value) if _is_plain(value) else None
    except (ValueError, OverflowError, RecursionError):  # a lone surrogate, a large number, a list that holds itself
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


def _from_plain(body: bytes) -> tuple[Any, Shown]:
    try:
        value = _unpack(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Foreign(f"it cannot be read: {error}") from error
    if type(value) is dict and set(map(type, value.values())) <= SCALARS:
        return value, Shown(dict(value), dict.copy)
    if type(value) is list and set(map(type, value)) <= SCALARS:
        return value, Shown(list(value), list.copy)
    return value, Shown(value) if type(value) in SCALARS else Shown(body, _unpack)


def _from_signed(place: bytes, body: bytes) -> tuple[Any, Shown]:
    signature, data = body[: signing.SIZE], body[signing.SIZE :]
    if not signing.is_signed(signature, place, data):
        raise Foreign("its signature is wrong")
    try:
        value = pickle.loads(data)  # noqa: S301
    except Exception as error:
        raise Foreign(f"it cannot be loaded: {type(error).__name__}: {error}") from error
    kind = type(value)
    unchanging = kind in UNCHANGING or (kind is tuple and set(map(type, value)) <= UNCHANGING)
    return value, Shown(value) if unchanging else Shown(data, pickle.loads)


__all__ = ["Entry", "Foreign", "Seen", "Shown", "decode", "encode", "renewed", "seen"]
