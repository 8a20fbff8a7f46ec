"""The bytes of the file. Pure.

Five tables of one LMDB environment:

| table | key | value |
|---|---|---|
| items | name | record |
| order | seq, 8 bytes | name: the item used least recently comes first |
| due | milliseconds, 8 bytes, and name | nothing: the item may have expired by then |
| parts | owner and position, 8 bytes each | a piece of a long value, or an item of a list |
| meta | `forcible`, `turn` | 8 bytes each: items thrown out alive; nothing, but written to change something |

A name is the key, or a digest of `DIGEST` bytes where the key is longer than `LONGEST_NAME`. A record is a head and a
body. Beside the environment lies a small file that all processes map, with two numbers: how many times everything was
flushed, and whether the memory is crowded. All items of another generation than the first number are stale.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from typing import Any, Final, NamedTuple

PAGE: Final = min(mmap.PAGESIZE, 32768)
"""LMDB's: that of the machine, but no larger than this."""
LONGEST_NAME: Final = 480
DIGEST: Final = 500
"""Longer than any name, and with the 8 bytes of `due` still a key that LMDB takes (511)."""

INLINE: Final = 1900
"""A record whose name and body are longer than this keeps its body in pieces, since LMDB would want adjoining pages."""
PIECE: Final = PAGE - 16
ENTRY: Final = 80
"""About what an item takes besides its name and body."""

IN_PARTS: Final = 1
LONG_KEY: Final = 2

FORCIBLE: Final = b"forcible"
TURN: Final = b"turn"

HEAD: Final = struct.Struct("<qIBBIQq")
"""expires (ms, 0: never), flags, kind, form, generation, seq, due (0: not in that table)."""
SIZE: Final = HEAD.size
FRONT: Final = struct.Struct("<q4xBBI").unpack_from
"""Of a record, what a reader needs: expires, kind, form, generation."""
SEQ: Final = struct.Struct("<18xQ").unpack_from
COUNTER: Final = struct.Struct("<q4xHI16xq").unpack
"""Of the record of a whole number: expires, kind (and 256 times the form), generation, the number."""
COUNTER_SIZE: Final = SIZE + 8
counted: Final = struct.Struct(f"<{SIZE}sq").pack
"""Such a record with another number."""
FORM: Final = 13
"""Where `form` is."""
COUNT: Final = struct.Struct("<Q")
PARTS: Final = struct.Struct("<QQ")
"""Of a body in parts: owner, length in bytes."""
ENDS: Final = struct.Struct("<QQQ")
"""Of a list: owner, position of the head, position after the tail."""
MIDDLE: Final = 2**62

order_key: Final = struct.Struct(">Q").pack
part_key: Final = struct.Struct(">QQ").pack


class Head(NamedTuple):
    """The head of a record, for code that is not in a hurry."""

    expires: int
    flags: int
    kind: int
    form: int
    generation: int
    seq: int
    due: int


def head_of(record: bytes) -> Head:
    return Head._make(HEAD.unpack_from(record))


def short_name(key: bytes) -> bytes:
    """Return the name of a key that is too long to be one."""
    return hashlib.blake2b(key).digest().ljust(DIGEST, b"\0")


def with_key(key: bytes, payload: bytes) -> bytes:
    """Return the body of an item whose name is a digest."""
    return len(key).to_bytes(2, "little") + key + payload


def key_in(body: bytes) -> bytes:
    return body[2 : 2 + int.from_bytes(body[:2], "little")]


def payload_in(body: bytes) -> bytes:
    return body[2 + int.from_bytes(body[:2], "little") :]


Txn = Any
"""An LMDB transaction; only `environment` imports the library."""
