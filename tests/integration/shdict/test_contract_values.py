"""Keys and values survive a round trip, on both engines, by sync and async calls."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
from django.utils.safestring import SafeString

from resty_django.shdict import BadKey, BadValue, Item, StoreOutcome
from tests.dictionaries import MIB, Calls

pytestmark = pytest.mark.contract

VALUES: list[Any] = [
    "",
    "text",
    "é ü 漢 \N{GRINNING FACE}",
    "nul \0 and\nnew line",
    0,
    1,
    -1,
    2**53 + 1,
    -(2**53) - 1,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.0,
    1.5,
    1e308,
    5e-324,
    math.inf,
    -math.inf,
    True,
    False,
    b"",
    b"\0\xff\n",
    [],
    {},
    [1, "a", None, [True, 2.5, b"\xff"]],
    {"a": {"b": [1, 2]}, "n": None},
    {1: "one"},
    "x" * 1900,
    "x" * 4096,
    b"\xab" * 65536,
    "é" * (MIB // 2),
]


async def test_values_keep_their_types(calls: Calls) -> None:
    for value in VALUES:
        assert await calls.set("k", value) is StoreOutcome.STORED
        loaded = await calls.get("k")
        assert type(loaded) is type(value)
        assert loaded == value
        assert math.copysign(1, loaded) == math.copysign(1, value) if isinstance(value, float) else True
        assert await calls.get_item("k") == Item(value, 0, False)


async def test_nan_survives_a_round_trip(calls: Calls) -> None:
    await calls.set("k", math.nan)
    assert math.isnan(await calls.get("k"))


class Suit(enum.StrEnum):
    HEARTS = "hearts"


class Size(enum.IntEnum):
    SMALL = 3


GIVEN: list[tuple[Any, Any]] = [
    ((1, (2, 3)), [1, [2, 3]]),
    (bytearray(b"ab"), b"ab"),
    (memoryview(b"ab"), b"ab"),
    (SafeString("safe"), "safe"),
    (Suit.HEARTS, "hearts"),
    (Size.SMALL, 3),
]


async def test_subclasses_and_tuples_are_returned_as_plain_values(calls: Calls) -> None:
    for stored, plain in GIVEN:
        await calls.set("k", stored)
        loaded = await calls.get("k")
        assert type(loaded) is type(plain)
        assert loaded == plain


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

BAD = [object(), {1, 2}, 1j, 2**63, -(2**63) - 1, 10**5000, "\ud800", [object()], [2**64], {"a": 1j}, DEEP]


async def test_a_value_that_cannot_be_stored_changes_nothing(calls: Calls) -> None:
    await calls.set("k", "before")
    for value in BAD:
        for call in (calls.set, calls.safe_set, calls.add, calls.safe_add, calls.replace):
            with pytest.raises(BadValue):
                await call("k", value)
    assert await calls.get("k") == "before"


async def test_none_deletes_in_set_and_is_refused_elsewhere(calls: Calls) -> None:
    await calls.set("k", "v")
    assert await calls.set("k", None) is StoreOutcome.STORED
    assert await calls.get_stale("k") is None
    assert await calls.set("k", None) is StoreOutcome.STORED
    for call in (calls.add, calls.safe_add, calls.replace, calls.lpush, calls.rpush):
        with pytest.raises(BadValue):
            await call("k", None)


async def test_the_default_of_get(calls: Calls) -> None:
    assert await calls.get("k") is None
    assert await calls.get("k", "other") == "other"
    await calls.set("k", 0)
    assert await calls.get("k", "other") == 0


KEYS: list[Any] = [
    "k",
    " ",
    "*",
    "a?b[c]d\\",
    "{tag}:x",
    "{",
    "}{",
    "with:colon",
    "nul\0nul",
    "new\r\nline",
    "é漢\N{GRINNING FACE}",
    "\udcff\udc80",
    "k" * 479,
    "k" * 480,
    "k" * 481,
    "k" * 500,
    "k" * 511,
    "k" * 512,
    "k" * 1900,
    "k" * 5000,
    "k" * 65535,
    "é" * 32767,
]


async def test_keys_are_independent(calls: Calls) -> None:
    for key in KEYS:
        value = "v" * 3000 if len(key) % 2 else "v"
        await calls.set(key + "x" if len(key) < 30000 else key[:-1], "beside")
        assert await calls.get(key) is None
        assert await calls.add(key, value, 10, 7) is StoreOutcome.STORED
        assert await calls.get(key) == value
        assert await calls.get_item(key) == Item(value, 7, False)
        assert await calls.ttl(key) == 10
        assert key in await calls.get_keys(0)
        assert await calls.delete(key) is True
        assert await calls.get(key) is None
        assert await calls.incr(key, 2, init=1) == 3
        assert await calls.incr(key, 2) == 5
        assert await calls.set(key, None) is StoreOutcome.STORED
        assert await calls.rpush(key, "item") == 1
        assert await calls.lpush(key, "first") == 2
        assert await calls.rpop(key) == "item"
        assert await calls.delete(key) is True
        assert len(await calls.get_keys(0)) == 1
        assert await calls.delete_many(await calls.get_keys(0)) == 1


async def test_long_keys_with_a_common_prefix_are_distinct(calls: Calls) -> None:
    keys = ["k" * length for length in (480, 481, 499, 500, 501, 600)]
    for number, key in enumerate(keys):
        await calls.set(key, number)
    assert [await calls.get(key) for key in keys] == list(range(len(keys)))


async def test_keys_of_other_types_are_their_text(calls: Calls) -> None:
    for key, text in ((5, "5"), (2.5, "2.5"), (True, "True"), (("a", 1), "('a', 1)"), (SafeString("s"), "s")):
        await calls.set(key, text)
        assert await calls.get(text) == text
    await calls.set(b"bytes", "b")
    assert await calls.get("bytes") == "b"
    await calls.set(b"\xff", "raw")
    assert await calls.get("\udcff") == "raw"


async def test_a_bad_key_is_refused_by_every_call(calls: Calls) -> None:
    key = "\ud800"
    tried = [
        calls.get(key),
        calls.get_item(key),
        calls.get_stale(key),
        calls.ttl(key),
        calls.llen(key),
        calls.set(key, 1),
        calls.set(key, None),
        calls.safe_set(key, 1),
        calls.add(key, 1),
        calls.safe_add(key, 1),
        calls.add_or_get(key, 1),
        calls.replace(key, 1),
        calls.delete(key),
        calls.delete_if(key, 1),
        calls.incr(key),
        calls.expire(key, 1),
        calls.expire_if(key, 1, 1),
        calls.update(key, lambda old: 1 / 0),
        calls.lpush(key, 1),
        calls.rpush(key, 1),
        calls.lpop(key),
        calls.rpop(key),
    ]
    for attempt in tried:
        with pytest.raises(BadKey, match="UTF-8"):
            await attempt


async def test_flags_come_back(calls: Calls) -> None:
    for flags in (0, 1, 2**31, 2**32 - 1):
        await calls.set("k", "v", flags=flags)
        assert await calls.get_item("k") == Item("v", flags, False)
        assert await calls.get_stale("k") == Item("v", flags, False)
        await calls.set("k", "v")
        assert await calls.get_item("k") == Item("v", 0, False)


async def test_flags_out_of_range_are_refused(calls: Calls) -> None:
    for call in (calls.set, calls.safe_set, calls.add, calls.safe_add, calls.replace):
        for flags in (-1, 2**32):
            with pytest.raises(ValueError, match="Flags"):
                await call("k", "v", flags=flags)
    assert await calls.get_stale("k") is None
