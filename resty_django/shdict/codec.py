"""Encoding of values as bytes with a kind, so that their type is preserved. Pure.

str, 64-bit integers, floats, bool and bytes have separate kinds; lists, tuples and dicts are stored as msgpack, so a
tuple is returned as a list. Decoding never runs code from the store.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from .errors import BadKey, BadValue, Unreadable, WrongKind

TEXT: Final = 0
INT: Final = 1
FLOAT: Final = 2
BOOL: Final = 3
BYTES: Final = 4
PACKED: Final = 5
LIST: Final = 6
"""The kind of a list created by `lpush` or `rpush`, whose items are stored separately."""

MAX_KEY_BYTES: Final = 65535
WHOLE: Final = struct.Struct("<q")
"""Format of an integer."""
_FLOAT: Final = struct.Struct("<d")
UNREADABLE: Final = (struct.error, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of decoding bytes that `encode` did not create."""
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode


def encode(value: Any) -> tuple[int, bytes]:
    """Return the kind of `value` and its bytes. Raise `BadValue`."""
    kind = type(value)
    if kind is str:
        try:
            return TEXT, value.encode()
        except UnicodeEncodeError as error:
            raise BadValue(f"The text cannot be written as UTF-8: {error}. Store it as bytes.") from None
    if kind is bytes:
        return BYTES, value
    if kind is int:
        try:
            return INT, WHOLE.pack(value)
        except struct.error:
            bits = value.bit_length()
            raise BadValue(f"An integer of {bits} bits is too large. Use at most 63 bits and a sign.") from None
    if kind is float:
        return FLOAT, _FLOAT.pack(value)
    if kind is bool:
        return BOOL, b"\1" if value else b"\0"
    return _encode_other(value)


def _encode_other(value: object) -> tuple[int, bytes]:
    if isinstance(value, list | tuple | dict):
        try:
            return PACKED, _pack(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadValue(f"The {type(value).__name__} cannot be written as msgpack: {error}.") from None
    if isinstance(value, bytes | bytearray | memoryview):
        return BYTES, bytes(memoryview(value))
    if isinstance(value, str):  # a subclass, such as a TextChoices member or a SafeString
        return encode(str.__str__(value))
    if isinstance(value, int):
        return encode(int.__int__(value))
    if isinstance(value, float):
        return encode(float.__float__(value))
    raise BadValue(
        f"A value of type {type(value).__name__} cannot be stored. Use str, numbers, bool, bytes, or lists "
        "and dicts of these."
    )


def decode(kind: int, data: bytes) -> Any:
    """Return the value that `encode` received. Raise `Unreadable`."""
    try:
        if kind == TEXT:
            return data.decode()
        if kind == INT:
            return WHOLE.unpack(data)[0]
        if kind == FLOAT:
            return _FLOAT.unpack(data)[0]
        if kind == PACKED and isinstance(value := _unpack(data), list | dict):
            return value
    except UNREADABLE as error:
        raise unreadable(error) from None
    if kind == BOOL:
        return data == b"\1"
    if kind == BYTES:
        return data
    raise unreadable("its bytes are not of its kind")


def decode_value(kind: int, data: bytes) -> Any:
    """Return the value of an item. Raise `WrongKind` for a list, or `Unreadable`."""
    if kind == LIST:
        raise WrongKind("The value is a list. Use lpop(), rpop() or llen().")
    return decode(kind, data)


def encode_element(value: object) -> tuple[int, bytes]:
    """Return the kind and the bytes of a value to be pushed to a list. Raise `BadValue`."""
    kind, data = encode(value)
    if kind not in (TEXT, INT, FLOAT, BYTES):
        raise BadValue(f"A list can contain str, numbers and bytes, not a {type(value).__name__}.")
    return kind, data


def check_addition(by: object, init: object, init_ttl: float) -> None:
    """Raise `BadValue` or `ValueError` for wrong arguments of `incr`; booleans are not numbers."""
    if init_ttl and init is None:
        raise ValueError("init_ttl is the time to live of a new number. Pass init as well.")
    for number in (by, 0 if init is None else init):
        if type(number) is not int and type(number) is not float:
            raise BadValue(f"{number!r} is not a number.")
    encode(by)  # raises for more than 64 bits, even if the sum fits


def unreadable(error: object) -> Unreadable:
    """Return the error for an item that another program wrote."""
    return Unreadable(f"The item cannot be read: {error}. Delete or overwrite it.")


def encode_key(key: object) -> bytes:
    """Return a key as bytes: str as UTF-8, bytes unchanged, other types converted with `str()`. Raise `BadKey`."""
    if type(key) is str:
        try:
            name = key.encode()
        except UnicodeEncodeError:
            name = _escaped(key)
    elif isinstance(key, bytes):
        name = key
    elif key is None:
        raise BadKey("The key is None. Use a str.")
    else:
        name = _escaped(str(key))
    if not 0 < len(name) <= MAX_KEY_BYTES:
        raise BadKey(f"The key has {len(name)} bytes. Use 1 to {MAX_KEY_BYTES} bytes.")
    return name


def _escaped(key: str) -> bytes:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadKey(f"The key cannot be written as UTF-8: {error}. Pass it as bytes.") from None


def decode_key(name: bytes) -> str:
    """Return a key as str; invalid UTF-8 becomes lone surrogates, which `encode_key` converts back."""
    return name.decode("utf-8", "surrogateescape")


def milliseconds(ttl: float) -> int:
    """Return a time to live (seconds) in whole milliseconds: 0 is forever; less than one millisecond counts as one."""
    if not 0 <= ttl <= 1e11:
        raise ValueError(f"A time to live must be 0 (forever) or a number of seconds up to 1e11, not {ttl!r}.")
    return int(ttl * 1000 + 1e-6) or (1 if ttl else 0)  # 0.57 * 1000 is a little less than 570


def check_flags(flags: int) -> int:
    if not 0 <= flags <= 0xFFFFFFFF:
        raise ValueError(f"Flags must be an integer from 0 to 4294967295, not {flags!r}.")
    return flags
