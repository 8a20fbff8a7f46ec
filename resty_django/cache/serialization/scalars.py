"""Conversion of immutable values to msgpack extensions and back. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

DECIMAL: Final = 1
DATETIME: Final = 2
DATE: Final = 3
TIME: Final = 4
TIMEDELTA: Final = 5
UUID_: Final = 6


class Unsupported(Exception):
    """The value cannot be stored; the message is the reason, as the end of a sentence."""


def _zoned(value: datetime | time) -> list[Any]:
    zone = value.tzinfo
    if zone is None or type(zone) is timezone:
        return [value.isoformat(), None, value.fold]
    if isinstance(zone, ZoneInfo) and zone.key:
        return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]
    raise Unsupported(f"has the time zone {zone!r}; use a ZoneInfo or a datetime.timezone")


def _from_zoned(kind: type[Any], content: list[Any]) -> Any:
    text, key, fold = content
    value = kind.fromisoformat(text)
    return value.replace(tzinfo=value.tzinfo if key is None else ZoneInfo(key), fold=fold)


ENCODERS: Final[dict[type, tuple[int, Callable[[Any], object]]]] = {
    Decimal: (DECIMAL, str),
    datetime: (DATETIME, _zoned),
    date: (DATE, date.isoformat),
    time: (TIME, _zoned),
    timedelta: (TIMEDELTA, lambda value: [value.days, value.seconds, value.microseconds]),
    UUID: (UUID_, lambda value: value.bytes),
}
"""The code and the function that returns the content, by exact type. The functions may raise `Unsupported`."""

DECODERS: Final[dict[int, Callable[[Any], object]]] = {
    DECIMAL: Decimal,
    DATETIME: lambda content: _from_zoned(datetime, content),
    DATE: date.fromisoformat,
    TIME: lambda content: _from_zoned(time, content),
    TIMEDELTA: lambda content: timedelta(*content),
    UUID_: lambda content: UUID(bytes=content),
}
