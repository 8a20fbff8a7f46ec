"""Arguments and replies of the Redis engine's scripts. Pure.

A value is sent as a digit for its kind and a payload: the codec's bytes, except that integers are decimal text, so that
the server can add to them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..base import Item
from ..codec import (
    BYTES,
    INT,
    TEXT,
    check_addition,
    check_flags,
    decode,
    decode_value,
    encode,
    encode_element,
    milliseconds,
    unreadable,
)
from ..errors import BadValue, NotANumber, NotFound, WrongKind

Sent: TypeAlias = tuple[bytes | int, ...]


def packed(value: Any) -> bytes:
    """Return a value in wire format. Raise `BadValue`."""
    kind, data = encode(value)
    return b"%d%d" % (kind, value) if kind == INT else b"%d%b" % (kind, data)


def unpacked(data: bytes) -> Any:
    """Return the value in a reply. Raise `WrongKind` or `Unreadable`."""
    try:
        kind = data[0] - 48  # the code of the digit 0
        if kind == TEXT:
            return data[1:].decode()
        if kind == BYTES:
            return data[1:]
        if kind == INT:
            return int(data[1:])
    except (ValueError, IndexError) as error:
        raise unreadable(error) from None
    return decode_value(kind, data[1:])


def separated(reply: Sequence[bytes]) -> list[bytes | None]:
    """Return the values in a reply of get_many.lua; None for absent ones."""
    lengths, joined = reply
    values: list[bytes | None] = []
    start = 0
    for length in map(int, lengths.split(b",")):
        values.append(joined[start : start + length] if length else None)
        start += length
    return values


def to_store(value: object, ttl: float, flags: int, stale: int) -> Sent:
    """Return the arguments for a new item: value, life, stale and flags, as needed. Raise `BadValue`."""
    data = packed(value)
    if flags:
        return data, milliseconds(ttl), stale, check_flags(flags)
    return (data, milliseconds(ttl), stale) if ttl else (data,)


def to_add(by: float, init: float | None, init_ttl: float, stale: int) -> Sent:
    """Return the number to add, the new item, its life and stale, as needed. Raise `BadValue`."""
    check_addition(by, init, init_ttl)
    if init is None:
        return (packed(by),)
    total = init + by
    new = b"O" if type(total) is int and not -(2**63) <= total < 2**63 else packed(total)
    return (packed(by), new, milliseconds(init_ttl), stale) if init_ttl else (packed(by), new)


def total(data: bytes | None, key: object, by: float) -> Any:
    """Return the sum replied by incr.lua. Raise `NotFound`, `NotANumber` or `BadValue`."""
    if data is None:
        raise NotFound(f"The key {key!r} does not exist. Pass init to incr() to create it.")
    if data == b"N":
        raise NotANumber(f"The value of the key {key!r} is not a number.")
    if data == b"O":
        raise BadValue(f"The sum of the key {key!r} and {by} needs more than 64 bits.")
    return unpacked(data)


def item(reply: list[Any] | None, stale: bool) -> Item | None:
    """Return the item replied by look.lua; an expired one only if `stale`. Raise `WrongKind`."""
    if reply is None or (reply[2] and not stale):
        return None
    return Item(unpacked(reply[0]), int(reply[1]), bool(reply[2]))


def packed_item(value: object) -> bytes:
    """Return a list item in wire format. Raise `BadValue`."""
    kind, data = encode_element(value)
    return bytes((kind,)) + data


def length(reply: int) -> int:
    """Return the length of a list. Raise `WrongKind`."""
    if reply == -1:
        raise WrongKind("The value is not a list. Use get().")
    return reply


def popped(reply: bytes | int | None) -> Any:
    """Return the item removed from a list. Raise `WrongKind`."""
    if isinstance(reply, int):
        return length(reply)
    return None if reply is None else decode(reply[0], reply[1:])
