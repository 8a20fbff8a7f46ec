"""Stored form of tags and their versions, in front of a value. Pure.

A block consists of its length in two bytes and msgpack: a list of tags, each followed by its version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import msgspec

Versions = Mapping[str, int]
"""The version of each tag."""

_LENGTH: Final = struct.Struct("<H")
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[str | int]).decode


def packed(versions: Versions) -> bytes:
    """Return the block."""
    body = _pack([part for pair in versions.items() for part in pair])
    return _LENGTH.pack(len(body)) + body


def unpacked(raw: bytes, start: int) -> tuple[Versions, int]:
    """Return the versions in the block that begins at `start`, and its end.

    Raise `struct.error`, `msgspec.MsgspecError` or `ValueError` for anything but a block.
    """
    (length,) = _LENGTH.unpack_from(raw, start)
    start += _LENGTH.size
    end = start + length
    if end > len(raw):
        raise ValueError("the tags are cut off")
    parts = iter(_unpack(raw[start:end]))
    return dict(zip(parts, parts, strict=True)), end  # type: ignore[arg-type]
