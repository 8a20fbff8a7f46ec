"""Calls for many keys, on both engines, sync and async."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from resty_django.shdict import BadKey, BadValue, Item, SharedDict, Unreadable, WrongKind
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB, Calls

from .structure import transactions

pytestmark = pytest.mark.contract

TWENTY = [f"product:{number}" for number in range(20)]


async def matching(calls: Calls, pattern: str) -> list[str]:
    if calls.twins:
        return sorted([key async for key in calls.dictionary.aiter_keys(pattern)])
    return sorted(calls.dictionary.iter_keys(pattern))


async def test_values_of_many_keys(calls: Calls) -> None:
    values: dict[Any, Any] = {
        "text": "é",
        "number": 2**63 - 1,
        "float": 0.5,
        "true": True,
        b"b\xff": b"\0",
        7: [1, "a"],
    }
    assert await calls.set_many(values) == []
    assert await calls.get_many(["absent", *values, "other"]) == values
    assert list(await calls.get_many(reversed(list(values)))) == list(reversed(values))
    assert await calls.get_many([]) == {}
    assert await calls.set_many({}) == []
    assert await calls.delete_many([]) == 0
    for key, value in values.items():
        assert await calls.get_item(key) == Item(value, 0, False)


async def test_an_empty_value_is_a_value(calls: Calls) -> None:
    await calls.set_many({"text": "", "bytes": b"", "list": []})
    assert await calls.get_many(["text", "bytes", "list"]) == {"text": "", "bytes": b"", "list": []}


async def test_long_keys_and_long_values(calls: Calls) -> None:
    values = {"k" * length: bytes(length) for length in (1, 480, 481, 5000, 60_000)}
    assert await calls.set_many(values) == []
    assert await calls.get_many(values) == values
    assert await matching(calls, "k*") == sorted(values)
    assert await calls.delete_many(values) == 5
    assert await calls.get_many(values) == {}


async def test_times_and_flags(calls: Calls) -> None:
    await calls.set_many({"a": 1, "b": 2}, 10, 3)
    await calls.set_many({"c": 1, "d": 2, "e": 3}, {"c": 5, "d": 0, "e": 0.5})
    assert await calls.get_item("a") == Item(1, 3, False)
    assert [await calls.ttl(key) for key in "abcde"] == [10, 10, 5, 0, 0.5]
    calls.clock.advance(5)
    assert await calls.get_many("abcde") == {"a": 1, "b": 2, "d": 2}
    assert await calls.get_stale("c") == Item(1, 0, True)
    await calls.set_many({"a": 2})
    assert await calls.ttl("a") == 0


async def test_none_deletes(calls: Calls) -> None:
    await calls.set_many({"a": 1, "b": 2})
    assert await calls.set_many({"a": None, "b": 3, "c": None}) == []
    assert await calls.get_many("abc") == {"b": 3}


async def test_delete_many_counts_existing_keys(calls: Calls) -> None:
    await calls.set_many({"a": 1, "b": 2}, {"a": 1, "b": 0})
    await calls.rpush("list", 1)
    calls.clock.advance(1)
    assert await calls.delete_many(["a", "b", "b", "list", "absent"]) == 2
    assert await calls.get_stale("a") is None
    assert await calls.llen("list") == 0


async def test_a_list_is_an_error_or_counts_as_absent(calls: Calls) -> None:
    await calls.rpush("list", 1)
    await calls.set("a", 1)
    with pytest.raises(WrongKind):
        await calls.get_many(["a", "list"])
    errors: list[Any] = []
    assert await calls.get_many(["list", "a"], lambda key, error: errors.append((key, type(error)))) == {"a": 1}
    assert errors == [("list", WrongKind)]
    await calls.set_many({"list": 7})
    assert await calls.get("list") == 7


@pytest.mark.redis
async def test_bytes_of_another_program(redis_cache: str, valkey: Redis) -> None:
    from resty_django.shdict.redis import RedisDict

    shared = RedisDict("own", alias=redis_cache)
    shared.set("a", 1)
    valkey.hset("resty:dict:own:b", mapping={"t": 5, "v": b"\xff", "f": 0, "e": 0})
    with pytest.raises(Unreadable):
        shared.get_many("ab")
    errors: list[Any] = []
    assert await shared.aget_many("ab", lambda key, error: errors.append((key, type(error)))) == {"a": 1}
    assert errors == [("b", Unreadable)]


async def test_wrong_arguments_store_nothing(calls: Calls) -> None:
    for values, ttl, flags, error in (
        ({"a": 1, "": 2}, 0, 0, BadKey),
        ({"a": 1, None: 2}, 0, 0, BadKey),
        ({"a": 1, "b": object()}, 0, 0, BadValue),
        ({"a": 1, "b": 2**64}, 0, 0, BadValue),
        ({"a": 1}, -1, 0, ValueError),
        ({"a": 1, "b": 1}, {"a": 1, "b": -1}, 0, ValueError),
        ({"a": 1, "b": 1}, {"a": 1}, 0, KeyError),
        ({"a": 1}, 0, -1, ValueError),
    ):
        with pytest.raises(error):
            await calls.set_many(values, ttl, flags)
    assert await calls.get("a") is None
    for call in (calls.get_many, calls.delete_many):
        with pytest.raises(BadKey):
            await call(["a", ""])


async def test_more_keys_than_one_step_takes(calls: Calls) -> None:
    values = {f"k{number}": number for number in range(1203)}
    assert await calls.set_many(values) == []
    assert await calls.get_many(values) == values
    assert await matching(calls, "*") == sorted(values)
    assert await calls.delete_many(values) == 1203
    assert await calls.get_keys(0) == []


# --- cost ------------------------------------------------------------------------------------------------------------


async def test_one_transaction(tmp_path: Any) -> None:
    shared = LmdbDict("own", 8 * MIB, str(tmp_path))
    shared.set("a", 1)
    before = transactions(shared)
    shared.set_many(dict.fromkeys(TWENTY, b"x" * 100), 60)
    assert transactions(shared) - before == 1
    assert len(shared.get_many(TWENTY)) == 20
    assert transactions(shared) - before == 1
    assert shared.delete_many(TWENTY) == 20
    assert transactions(shared) - before == 2
    shared.close()


# --- no space --------------------------------------------------------------------------------------------------------


async def test_a_full_dictionary_evicts(small: LmdbDict) -> None:
    for number in range(30):
        values = {f"{number}:{n}": bytes(500) for n in range(200)}
        assert small.set_many(values) == []
    assert small.get_many(values) == values
    assert small.stats().forcible


async def test_keys_that_do_not_fit_are_returned(small: LmdbDict) -> None:
    small.set("large", b"old")
    values = {"a": b"1", "large": bytes(700_000), "b": bytes(1000)}
    assert small.set_many(values) == ["large"]
    assert small.get_many(values) == {"a": b"1", "large": b"old", "b": bytes(1000)}


@pytest.mark.redis
async def test_a_full_server(redis_cache: str, valkey: Redis) -> None:
    from resty_django.shdict.redis import RedisDict

    shared = RedisDict("own", alias=redis_cache)
    shared.set("a", b"old")
    valkey.config_set("maxmemory", 1)
    try:
        assert shared.set_many({"a": 1, "b": 2, "c": None}) == ["a", "b"]
        assert await shared.aset_many({"a": 1}) == ["a"]
        assert shared.get_many("abc") == {"a": b"old"}
        assert shared.delete_many("abc") == 1
    finally:
        valkey.config_set("maxmemory", 0)


# --- patterns --------------------------------------------------------------------------------------------------------

KEYS = [
    "",
    "a",
    "ab",
    "abc",
    "a*c",
    "a?c",
    "[a]",
    "a\\c",
    "user:1:name",
    "user:2:name",
    "user:10",
    "Übung",
    "漢",
    "new\nline",
]


PATTERNS = [
    ("*", KEYS),
    ("**", KEYS),
    ("a", ["a"]),
    ("a*", ["a", "ab", "abc", "a*c", "a?c", "a\\c"]),
    ("a?c", ["abc", "a*c", "a?c", "a\\c"]),
    (r"a\*c", ["a*c"]),
    (r"a\?c", ["a?c"]),
    (r"a\\c", ["a\\c"]),
    (r"\[a\]", ["[a]"]),
    ("[a]", ["a"]),
    ("[", []),
    ("a[^b]c", ["a*c", "a?c", "a\\c"]),
    ("user:[0-9]:*", ["user:1:name", "user:2:name"]),
    ("user:[9-0]:*", ["user:1:name", "user:2:name"]),
    ("user:*:name", ["user:1:name", "user:2:name"]),
    ("*e", ["user:1:name", "user:2:name", "new\nline"]),
    ("*s*r*:*1*", ["user:1:name", "user:10"]),
    ("*u*n*m*e*", ["user:1:name", "user:2:name"]),
    ("?", ["a", "漢"]),
    ("Ü*", ["Übung"]),
    ("[Ü漢]*", ["Übung", "漢"]),
    ("new?line", ["new\nline"]),
    ("ab", ["ab"]),
    (r"[\]\[a]*", ["a", "ab", "abc", "a*c", "a?c", "a\\c", "[a]"]),
    ("(a|b)+", []),
]


async def test_patterns(calls: Calls) -> None:
    await calls.set_many({key: 1 for key in KEYS if key})
    for pattern, keys in PATTERNS:
        assert await matching(calls, pattern) == sorted(filter(None, keys))


async def test_only_live_keys_match(calls: Calls) -> None:
    await calls.set_many({"a": 1, "b": 1}, {"a": 1, "b": 0})
    await calls.rpush("list", 1)
    calls.clock.advance(1)
    assert await matching(calls, "*") == ["b", "list"]


async def test_a_pattern_that_would_backtrack(calls: Calls) -> None:
    await calls.set_many({"a" * 400 + str(number): 1 for number in range(20)})
    began = time.process_time()
    assert await matching(calls, "a*" * 400 + "b") == []
    assert await matching(calls, "*a" * 300 + "[b-c]") == []
    assert time.process_time() - began < 5
    with pytest.raises(BadKey, match="1001 characters"):
        await matching(calls, "a" * 1001)
    with pytest.raises(BadKey, match="not 7"):
        await matching(calls, 7)  # type: ignore[arg-type]


async def test_keys_that_change_while_they_are_listed(dictionary: SharedDict) -> None:
    dictionary.set_many({f"k{number}": number for number in range(600)})
    seen = set()
    for key in dictionary.iter_keys("k*"):
        seen.add(key)
        dictionary.delete(key)
        dictionary.set(f"new{key}", 1)
    assert seen == {f"k{number}" for number in range(600)}
