"""The calls of django-redis beyond Django's API, over our backend on both engines and over django-redis itself; where
they differ on purpose, the test says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from resty_django.cache.backend.store import stores
from resty_django.events import runtime as events_process
from resty_django.lock import HeldLock, LockLost, LockTimeout, NotLocked
from tests.integration.cache.backends import Api, fresh, shout

OURS = ["lmdb", pytest.param("redis", marks=pytest.mark.redis)]


def caches_of(request: pytest.FixtureRequest, settings: Any, folder: Path) -> Iterator[Api]:
    for _ in fresh(request, settings, folder, request.param):
        yield Api(request.param, twins=request.param == "redis")


@pytest.fixture(params=[*OURS, pytest.param("django-redis", marks=pytest.mark.redis)])
def api(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[Api]:
    """Our backend, sync over LMDB and async over Redis, and django-redis, whose twins have other names."""
    yield from caches_of(request, settings, tmp_path)


@pytest.fixture(params=OURS)
def ours(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[Api]:
    yield from caches_of(request, settings, tmp_path)


# --- times -----------------------------------------------------------------------------------------------------------


async def test_ttl_returns_the_time_that_remains(api: Api) -> None:
    await api.set("k", "v", 60)
    await api.set("ever", "v", None)
    await api.set("n", 1, 60)
    for key in ("k", "n"):
        assert await api.ttl(key) in (59, 60)
        assert 55_000 < await api.pttl(key) <= 60_000
    assert await api.ttl("ever") is None
    assert await api.pttl("ever") is None
    assert await api.ttl("absent") == 0
    assert await api.pttl("absent") == 0
    assert await api.ttl("k", version=2) == 0


async def test_expire_and_persist(api: Api) -> None:
    for key, value in {"k": {1, 2}, "n": 1}.items():
        await api.set(key, value, 60)
        assert await api.expire(key, 1000) is True
        assert await api.ttl(key) in (999, 1000)
        assert await api.persist(key) is True
        assert await api.ttl(key) is None
        assert await api.get(key) == value
    assert await api.expire("absent", 10) is False
    assert await api.persist("absent") is False
    assert await api.expire("k", 10, version=2) is False


async def test_incr_with_a_time_to_live(ours: Api) -> None:
    assert [await ours.incr("n", ttl=60) for _ in range(3)] == [1, 2, 3]
    assert await ours.ttl("n") in (59, 60)
    assert await ours.incr("n", 5, ttl=1000) == 8
    assert await ours.ttl("n") in (59, 60), "the time of a number that exists stays"
    assert await ours.incr("ever", -2, ttl=0) == -2
    assert await ours.ttl("ever") is None
    with pytest.raises(ValueError, match="absent' not found"):
        await ours.incr("absent")
    await ours.set("text", "v")
    with pytest.raises(TypeError):
        await ours.incr("text", ttl=60)


# --- keys ------------------------------------------------------------------------------------------------------------


async def keys_of(api: Api, pattern: str, **options: Any) -> list[str]:
    if api.twins:
        listed = [key async for key in api.cache.aiter_keys(pattern, **options)]
        assert sorted(await api.cache.akeys(pattern, **options)) == sorted(listed)
    else:
        listed = list(api.cache.iter_keys(pattern, **options))
        assert sorted(api.cache.keys(pattern, **options)) == sorted(listed)
    return sorted(listed)


async def test_keys_are_listed_by_pattern(api: Api) -> None:
    await api.set_many({"user:1": 1, "user:2": "x", "user*": {1, 2}, "other": None, "a:b:c": 1})
    await api.set("user:3", 1, version=2)
    await api.of("prefixed").set("user:4", 1)
    assert await keys_of(api, "*") == ["a:b:c", "other", "user*", "user:1", "user:2"]
    assert await keys_of(api, "user:*") == ["user:1", "user:2"]
    assert await keys_of(api, r"user\*") == ["user*"]
    assert await keys_of(api, "user:[2-9]") == ["user:2"]
    assert await keys_of(api, "user:?", version=2) == ["user:3"]
    assert await keys_of(api.of("prefixed"), "*") == ["user:4"]
    assert await keys_of(api, "absent*") == []


async def test_keys_leave_out_locks_and_counts(ours: Api) -> None:
    await ours.set("k", "v")
    stores["pages"].counter.flush_due()
    with ours.cache.lock("k", timeout=10):
        assert await ours.get_or_set("made", lambda: 1) == 1
        assert await keys_of(ours, "*") == ["k", "made"]


async def test_delete_pattern(api: Api) -> None:
    numbers = {f"user:{number}": number for number in range(1203)}
    await api.set_many({**numbers, "other": "x"})
    await api.set("user:7", 1, version=2)
    assert await api.delete_pattern("user:*", itersize=100) == 1203
    assert await keys_of(api, "*") == ["other"]
    assert await api.get("user:7", version=2) == 1
    assert await api.delete_pattern("user:*") == 0


async def test_prefixes_and_patterns_of_strangers(ours: Api, settings: Any) -> None:
    base = settings.CACHES["default"]
    settings.CACHES = {**settings.CACHES, "odd": {**base, "KEY_PREFIX": "*[a-z]?\\"}}
    events_process.reset()
    await ours.set_many({"a": 1, "b": 2})
    odd = ours.of("odd")
    await odd.set("x", 1)
    assert await keys_of(odd, "*") == ["x"]
    assert await odd.delete_pattern("*") == 1
    assert await keys_of(ours, "*") == ["a", "b"]
    assert await ours.delete_pattern("a*" * 400) == 0
    for pattern, error in (("x" * 1001, ValueError), (7, TypeError)):
        with pytest.raises(error):
            await ours.delete_pattern(pattern)


async def test_keys_with_a_key_function(ours: Api, settings: Any) -> None:
    shouting = ours.of("shouting")
    await shouting.set_many({"a1": 1, "a2": 2, "b": 3})
    with pytest.raises(ImproperlyConfigured, match="REVERSE_KEY_FUNCTION"):
        await keys_of(shouting, "a*")
    assert await shouting.delete_pattern("b") == 1
    base = settings.CACHES["default"]
    options = {**base["OPTIONS"], "REVERSE_KEY_FUNCTION": f"{__name__}.whispered"}
    settings.CACHES = {**settings.CACHES, "shouting": {**base, "KEY_FUNCTION": shout, "OPTIONS": options}}
    events_process.reset()
    assert await keys_of(shouting, "a*") == ["a1", "a2"]


def whispered(name: str) -> str:
    return name.rpartition("/")[2].lower()


# --- many keys -------------------------------------------------------------------------------------------------------


async def test_many_keys_and_l1(ours: Api) -> None:
    values: dict[str, Any] = {"text": "x", "number": 7, "none": None, "set": {1, 2}, "list": [1]}
    assert await ours.set_many(values, 60) == []
    assert await ours.get_many([*values, "absent"]) == values
    store = stores["pages"]
    assert set(store.lru.items) == {f":1:{key}" for key in values if key != "number"}
    reply = await ours.get_many(values)
    reply["list"].append(2)
    assert await ours.get("list") == [1]
    store.counter.flush_due()
    before = store.counts.l1, store.counts.l2, store.counts.misses
    await ours.get_many([*values, "absent"])
    after = store.counts.l1, store.counts.l2, store.counts.misses
    assert [new - old for new, old in zip(after, before, strict=True)] == [4, 1, 1]
    await ours.delete_many(["text", "list", "absent"])
    assert not {":1:text", ":1:list"} & set(store.lru.items)
    assert sorted(await ours.get_many(values)) == ["none", "number", "set"]
    assert await ours.set_many({"none": 1}, 0) == []
    assert await ours.get("none", "gone") == "gone"


async def test_entries_of_others_count_as_absent(ours: Api) -> None:
    shm = stores["pages"].shm if "pages" in stores else (await ours.set("x", 1), stores["pages"].shm)[1]
    await ours.set_many({"a": {1}, "b": "y"})
    moved = shm.get(":1:a")
    shm.set_many({":1:moved": moved, ":1:junk": b"junk", ":1:text": "of another program"})
    shm.rpush(":1:list", 1)
    stores["pages"].lru.flush_all()
    assert await ours.get_many(["a", "moved", "junk", "text", "list", "b"]) == {"a": {1}, "b": "y"}
    assert shm.get_many([":1:moved", ":1:junk", ":1:text"]) == {}
    assert shm.llen(":1:list") == 1


async def test_one_event_deletes_all_keys_in_other_processes(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await ours.set_many(dict.fromkeys("abc", "x"))
    channel: Any = stores["pages"].channel
    events: list[Any] = []
    original = channel.carry

    def carry(name: str, data: str) -> Any:
        events.append(sorted(json.loads(data)))
        return original(name, data)

    monkeypatch.setattr(channel, "carry", carry)
    await ours.set_many(dict.fromkeys("abc", "y"))
    await ours.delete_many("abc")
    await ours.set_many(dict.fromkeys("abc", "y"))
    await ours.delete_pattern("*")
    assert events == [[":1:a", ":1:b", ":1:c"]] * 4


# --- get_or_set ------------------------------------------------------------------------------------------------------


async def test_get_or_set_as_in_django(api: Api) -> None:
    assert await api.get_or_set("k", "plain", 60) == "plain"
    assert await api.get_or_set("k", lambda: "other") == "plain"
    assert await api.get_or_set("f", lambda: {1}) == {1}
    assert await api.get_or_set("none", lambda: None) is None
    assert await api.get_or_set("none", lambda: 7) is None
    assert await api.get_or_set("brief", lambda: 1, 0) == 1
    assert await api.get("brief") is None

    def fails() -> None:
        raise LookupError("no source")

    with pytest.raises(LookupError, match="no source"):
        await api.get_or_set("failing", fails)
    assert await api.get_or_set("failing", lambda: 2) == 2


# --- locks -----------------------------------------------------------------------------------------------------------


async def test_a_lock_excludes_others(api: Api) -> None:
    cache = api.cache
    with cache.lock("k", timeout=10):
        assert not cache.lock("k", timeout=10).acquire(blocking=False)
        assert cache.lock("other", timeout=10).acquire(blocking=False)
    lock = cache.lock("k", timeout=10, sleep=0.01, blocking_timeout=0.05)
    assert lock.acquire()
    assert not cache.lock("k", timeout=10, sleep=0.01, blocking_timeout=0.05).acquire()
    lock.release()
    assert cache.lock("k").acquire()


async def test_a_lock_has_the_calls_and_errors_of_our_locks(ours: Api) -> None:
    cache = ours.cache
    held = cache.lock("k", timeout=10)
    assert isinstance(held, HeldLock)
    async with held as waited:
        assert waited == 0
        assert held.locked
        with (
            pytest.raises(LockTimeout, match=r"not free within 0\.02 s"),
            cache.lock("k", blocking_timeout=0.02, sleep=0.01),
        ):
            pass
        assert not await cache.lock("k").aacquire(blocking_timeout=0.02)
    assert not held.locked
    assert await held.aacquire()
    await held.arelease()
    with pytest.raises(NotLocked):
        held.release()
    lost = cache.lock("k", timeout=0.001)
    assert lost.acquire()
    stores["pages"].shm.delete("django-cache/lock::1:k")
    with pytest.raises(LockLost):
        lost.release()
    with pytest.raises(ValueError, match="exptime"):
        cache.lock("k", timeout=0)


async def test_a_lock_without_a_timeout_waits_and_never_expires(ours: Api) -> None:
    cache = ours.cache
    first, second = cache.lock("k"), cache.lock("k", timeout=10, sleep=0.01)
    assert first.acquire()
    assert stores["pages"].shm.ttl("django-cache/lock::1:k") > 1e9
    task = asyncio.create_task(second.aacquire())
    await asyncio.sleep(0.05)
    assert not task.done()
    first.release()
    assert await task
    second.release()
