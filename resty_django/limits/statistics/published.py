"""The limiters of a limit as a process publishes them, so that others can read and reset the states of its keys."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from resty_django.conf import conf

from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from .catalog import MOST_PARTS, CountedLimit

ATTRIBUTES: Final[dict[type[Limiter[Any]], tuple[str, ...]]] = {
    LeakyBucket: ("rate", "burst", "clamp", "idle"),
    FixedWindow: ("limit", "window"),
    SlidingWindow: ("limit", "window"),
    TokenBucket: ("interval_ms", "capacity", "quantum", "max_wait_ms", "clamp", "idle"),
    Concurrency: ("max", "burst", "unit_delay", "lease"),
}
"""The attributes with the numbers of a limiter, by class."""
_ARGUMENTS: Final = {"unit_delay": "default_delay"}
"""Names of arguments that differ from the attributes."""
_CLASSES: Final = {cls.__name__: cls for cls in ATTRIBUTES}


class _Numbers(msgspec.Struct, array_like=True):
    """A limiter: the name of its class, and its options. `numbers`: the attributes, in their order."""

    kind: str
    prefix: str
    name: str
    store: str
    numbers: list[int | float | bool | str | None]


class _Limit(msgspec.Struct, array_like=True):
    roles: list[str]
    enforced: bool
    limiters: list[_Numbers]


class PublishedLimit(NamedTuple):
    """A limit of another process. `roles`, `enforced`: see `CountedLimit`."""

    roles: tuple[str, ...]
    enforced: bool
    limiters: tuple[Limiter[Any], ...]


def packed(limit: CountedLimit) -> bytes:
    """Return a limit as bytes for `unpacked`; "" if other processes cannot read its states.

    Limiters with a separate clock, or with a store that is not a shared dictionary of the settings, are left out.
    """
    numbers = [
        _Numbers(
            type(limiter).__name__,
            limiter.prefix,
            limiter.name,
            limiter._store or conf.limits.store,
            [getattr(limiter, attribute) for attribute in ATTRIBUTES[type(limiter)]],
        )
        for limiter in limit.limiters.values()
        if type(limiter) in ATTRIBUTES and limiter.clock is None and isinstance(limiter._store, str | None)
    ]
    return msgspec.msgpack.encode(_Limit(list(limit.roles), limit.enforced, numbers)) if numbers else b""


def unpacked(stored: Any) -> PublishedLimit | None:
    """Return the limit that `packed` wrote; None for foreign data."""
    if not isinstance(stored, bytes):
        return None
    try:
        limit = msgspec.msgpack.decode(stored, type=_Limit)
        limiters = tuple(map(_limiter, limit.limiters[:MOST_PARTS]))
    except (msgspec.MsgspecError, TypeError, ValueError, KeyError):
        return None
    return PublishedLimit(tuple(limit.roles), limit.enforced, limiters) if limiters else None


def _limiter(row: _Numbers) -> Limiter[Any]:
    cls: Any = _CLASSES[row.kind]
    names = (_ARGUMENTS.get(name, name) for name in ATTRIBUTES[cls])
    make: Any = TokenBucket.from_interval if cls is TokenBucket else cls
    numbers = dict(zip(names, row.numbers, strict=True))
    limiter: Limiter[Any] = make(**numbers, prefix=row.prefix, name=row.name, store=row.store)
    return limiter
