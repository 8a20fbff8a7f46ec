"""Event records: JSON with the fields of lua-resty-worker-events. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NamedTuple

import msgspec

from .errors import BadEvent, NotEncodable

_to_json: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_fast: Final = msgspec.json.Encoder().encode
"""Makes a post a third faster than `_to_json`, but also encodes what is not JSON."""

NOT_EVENT: Final = 1
"""The first byte of a journal entry that is not an event. Caches may use the same dictionary."""


class Event(NamedTuple):
    """One event.

    `pid` is the posting process, None for a local event. An event with a `unique` value is handled by one process only.
    """

    source: str
    event: str
    data: Any = None
    unique: str | None = None
    pid: int | None = None


def check(source: object, event: object) -> None:
    """Raise `BadEvent` for an event without a source or a name."""
    if not isinstance(source, str) or not source:
        raise BadEvent(f"source is required: it must be a non-empty string, not {source!r}.")
    if not isinstance(event, str) or not event:
        raise BadEvent(f"event is required: it must be a non-empty string, not {event!r}.")


def failed(event: str, source: str, why: object) -> str:
    """Return the error message for an event that could not be posted."""
    return f'failed posting event "{event}" by "{source}"; {why}'


def encode(event: Event) -> bytes:
    """Return the event as JSON. Raise `NotEncodable`."""
    fields = event._asdict()
    try:
        if _is_plain(event.data):
            return _fast(fields)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass  # such as a lone surrogate: the slower encoder supports it, or reports what is wrong
    try:
        return _to_json(fields).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotEncodable(failed(event.event, event.source, f"its data cannot be written as JSON: {error}")) from error


def decode(record: bytes) -> Event:
    """Return the event that `encode` received. Raise `ValueError` for any other record."""
    fields = json.loads(record)
    if not isinstance(fields, dict):
        raise ValueError(f"an event is a JSON object, not {type(fields).__name__}")
    event = Event._make(map(fields.get, Event._fields))
    check(event.source, event.event)
    if not isinstance(event.unique, str | None) or not isinstance(event.pid, int | None):
        raise ValueError(f"an event with the unique {event.unique!r} and the pid {event.pid!r}")
    return event


def _is_plain(value: Any) -> bool:
    """Return whether both encoders treat a value in the same way."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    return kind is float and math.isfinite(value)
