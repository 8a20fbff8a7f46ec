"""The binary format of the file. Pure.

Six tables of one LMDB environment:

| table | key | value |
|---|---|---|
| items | name | record |
| order | seq, 8 bytes | name; the least recently used item comes first |
| due | milliseconds, 8 bytes, and name | empty; the item may have expired by then |
| parts | owner and position, 8 bytes each | a piece of a long value, or an item of a list |
| meta | `forcible`, `turn` | 8 bytes each: number of forcible evictions; a dummy written to force a change |
| journal | number, 8 bytes | an entry; empty: the entry is the item `journal:<number>` |

A name is the key, or a digest of 500 bytes if the key is longer than `MAX_NAME_BYTES`. A record is a head and a body.
Next to the environment is a small file that all processes map. It contains three numbers: the number of flushes,
whether the memory is crowded, and whether a process waits for entries of the journal. Items whose generation differs
from the first number are stale.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import lmdb

Txn: TypeAlias = "lmdb.Transaction[bytes]"

PAGE_BYTES: Final = min(mmap.PAGESIZE, 32768)
"""LMDB's page size: the machine's, but no larger than this."""
MAX_NAME_BYTES: Final = 480
"""Maximum length of a key that is used as a name; with the 8 bytes of `due` it fits into LMDB's limit of 511."""
MAX_INLINE_BYTES: Final = 1900
"""Maximum size of name and body; longer bodies are stored in pieces, because LMDB would need contiguous pages."""
PIECE_BYTES: Final = PAGE_BYTES - 16
ITEM_OVERHEAD_BYTES: Final = 80
"""Approximate size of an item in addition to its name and body."""

IN_PARTS: Final = 1
LONG_KEY: Final = 2
"""The bits of `form`: the body is stored in pieces; it begins with the key, because the name is a digest."""

FORCIBLE: Final = b"forcible"

HEAD: Final = struct.Struct("<qIBBIQq")
"""The fields of `ItemHead`."""
HEAD_BYTES: Final = HEAD.size
FORM_OFFSET: Final = 13
BODY_PARTS: Final = struct.Struct("<QQ")
"""A body in parts: owner, length in bytes."""
LIST_ENDS: Final = struct.Struct("<QQQ")
"""The fields of `ListEnds`."""

front_of: Final = struct.Struct("<q4xBBI").unpack_from
"""Return the fields of a record that readers need: expiry, kind, form, generation."""
seq_of: Final = struct.Struct("<18xQ").unpack_from
counter_of: Final = struct.Struct("<q4xHI16xq").unpack
"""Return the fields of an integer's record: expiry, kind (plus 256 times the form), generation, the number."""
counted: Final = struct.Struct(f"<{HEAD_BYTES}sq").pack
"""Return an integer's record with a different number."""
order_key: Final = struct.Struct(">Q").pack
part_key: Final = struct.Struct(">QQ").pack


class ItemHead(NamedTuple):
    """The head of a record. `expires` and `due`: milliseconds; 0: never, and not in the table `due`."""

    expires: int
    flags: int
    kind: int
    form: int
    generation: int
    seq: int
    due: int


class ListEnds(NamedTuple):
    """The body of a list: the owner of its parts, the position of its first element, and the one after its last."""

    owner: int
    first: int
    end: int


def head_of(record: bytes) -> ItemHead:
    return ItemHead._make(HEAD.unpack_from(record))


def short_name(key: bytes) -> bytes:
    """Return the name for a key that is too long to be used directly."""
    return hashlib.blake2b(key).digest().ljust(500, b"\0")  # longer than any key that is used directly


def with_key(key: bytes, payload: bytes) -> bytes:
    """Return the body of an item whose name is a digest."""
    return len(key).to_bytes(2, "little") + key + payload


def key_in(body: bytes) -> bytes:
    return body[2 : 2 + int.from_bytes(body[:2], "little")]


def payload_in(body: bytes) -> bytes:
    return body[2 + int.from_bytes(body[:2], "little") :]
