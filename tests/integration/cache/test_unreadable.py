"""Bytes in L2 that nobody can decode: they count as absent, in every call, on every engine."""

from __future__ import annotations

import contextlib
import logging
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.cache.backend import entries
from resty_django.cache.backend.entries import Foreign
from resty_django.cache.storage import records
from resty_django.shdict import SharedDict, Unreadable, codec
from tests.integration.cache.conftest import Make, value

DEEP = b"\x91" * 20_000 + b"\x01"
BODIES = {
    "a text that is not UTF-8": b"\xa2\xff\xfe",
    "a key that is not UTF-8": b"\x81\xa2\xff\xfe\x01",
    "nested too deeply": DEEP,
    "maps nested too deeply": b"\x81\x01" * 20_000 + b"\x01",
    "cut off": b"\x92\x01",
    "too much": b"\x01\x02",
    "a length of 4 GB": b"\xdd\xff\xff\xff\xff",
    "keys that cannot be keys": b"\x81\x80\x01",
    "a time that is none": b"\xd7\xff" + b"\xff" * 8,
    "nothing": b"",
    "no msgpack": b"\xc1",
}
HEADS = {
    "lives for NaN": (1.0, float("nan")),
    "has an infinite time to live": (1.0, float("inf")),
    "lives for less than nothing": (1.0, -1.0),
    "stored at NaN": (float("nan"), 5.0),
    "stored at infinity": (float("-inf"), 0.0),
}
RECORDS = {
    **{name: struct.pack("<BBdd", records.LAYOUT, 0, 1.0, 0.0) + body for name, body in BODIES.items()},
    **{name: struct.pack("<BBdd", records.LAYOUT, 0, *head) + b"\x01" for name, head in HEADS.items()},
}
ENTRIES = {
    **{name: struct.pack("<BBdd", records.LAYOUT, records.ENTRY, 1.0, 0.0) + body for name, body in BODIES.items()},
    **{name: struct.pack("<BBdd", records.LAYOUT, records.ENTRY, *head) + b"\x01" for name, head in HEADS.items()},
    **{
        f"a pickle that {name}": struct.pack("<BBdd", records.LAYOUT, records.ENTRY | records.SIGNED, *head) + bytes(40)
        for name, head in HEADS.items()
    },
}
ITEMS = {
    "a text that is not UTF-8": b"0\xff\xfe",
    "a number that is none": b"1x",
    "a float of three bytes": b"2abc",
    "a list that is none": b"5\xc1",
    "a list nested too deeply": b"5" + DEEP,
    "an extension": b"5\xd4\x05a",
    "a number where a list is": b"5\x01",
    "an unknown kind": b"9x",
    "a byte below the kinds": b"\x00",
}
"""Values in the hash of a shared dictionary on Redis."""


async def test_a_record_that_cannot_be_decoded_is_absent(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    process = make(ttl=60)
    shm: SharedDict = process.cache.dictionaries[0]
    for name, raw in RECORDS.items():
        process.cache.lru.flush_all()
        shm.set("c:key", raw)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "resty_django.cache"):
            assert await process.lookup("key") == (None, None, -1), name
        assert "counts as absent" in caplog.text, name
        assert await process.do("peek", "key") is None, name
        shm.set("c:key", raw)
        assert await process.lookup("key", value("new")) == ("new", None, 3), name
        shm.set("c:key", raw)
        process.cache.lru.flush_all()
        assert await process.do("peek", "key", True) is None, name
        await process.do("set", "key", "set")
        process.cache.lru.flush_all()
        assert await process.lookup("key") == ("set", None, 2), name


@pytest.mark.redis
@pytest.mark.parametrize("engine", ["redis"], indirect=True)
@pytest.mark.parametrize("twins", [False, True])
async def test_an_item_that_cannot_be_decoded_is_absent(make: Make, valkey: Any, twins: bool) -> None:
    process = make(ttl=60)
    process.twins = twins
    shm: Any = process.cache.dictionaries[0]

    def spoil(raw: bytes) -> None:
        shm.set("c:key", "x")
        valkey.hset(shm.prefix + "c:key", mapping={"t": raw[:1], "v": raw[1:]})
        process.cache.lru.flush_all()

    for name, raw in ITEMS.items():
        spoil(raw)
        with pytest.raises(Unreadable, match="Delete or overwrite it"):
            shm.get("c:key")
        assert await process.lookup("key") == (None, None, -1), name
        assert await process.lookup("key", value("new")) == ("new", None, 3), name
        process.cache.lru.flush_all()
        assert await process.lookup("key") == ("new", None, 2), name
        spoil(raw)
        assert await process.do("peek", "key", True) is None, name
        spoil(raw)
        await process.do("delete", "key")
        assert await process.lookup("key") == (None, None, -1), name


@given(st.binary(max_size=200), st.sampled_from([b"", *RECORDS.values(), *ENTRIES.values()]))
def test_no_bytes_raise_anything_else(tail: bytes, front: bytes) -> None:
    raw = front + tail
    record = records.decode(raw)
    assert record is None or record.ttl >= 0
    for call in (lambda: entries.decode(b"place", raw, 0.0), lambda: entries.inspect(raw)):
        with contextlib.suppress(Foreign):
            call()


@given(st.integers(0, 255), st.binary(max_size=100))
def test_no_item_raises_anything_else(kind: int, data: bytes) -> None:
    try:
        read = codec.decode(kind, data)
    except Unreadable:
        return
    assert codec.decode(*codec.encode(read)) == read or read != read or isinstance(read, list | dict)
