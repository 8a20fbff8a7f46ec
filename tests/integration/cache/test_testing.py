"""`resty_django.cache.testing`: counts in a block, and caches that store nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django.cache import MLCache, cache_view, cached, mlcaches
from resty_django.cache.backend import MLCacheBackend
from resty_django.cache.testing import assert_cache, caches_disabled, count_cache
from tests.integration.cache.backends import install


@pytest.fixture
def own(site: Any, settings: Any, tmp_path: Path) -> Iterator[None]:
    install(settings, "lmdb", tmp_path, "")
    yield
    for cache in mlcaches.all(initialized_only=True):
        cache.lru.flush_all()


def test_hits_and_calls(own: None) -> None:
    @cached(name="counted")
    def load(number: int) -> int:
        return number

    with assert_cache(hits=2, calls=1) as counts:
        for _ in range(3):
            load(1)
    assert (counts.hits, counts.calls, counts.misses) == (2, 1, 0)
    with assert_cache(calls=0):
        load(1)
    with pytest.raises(AssertionError) as raised, assert_cache(hits=1, calls=2):
        load(2)
    assert str(raised.value) == (
        "Expected 1 hits, not 0, 2 calls, not 1. "
        "Counted: 0 hits (0 in L1, 0 in L2, 0 stale), 1 calls, 0 misses, 0 errors."
    )
    with pytest.raises(LookupError), assert_cache(hits=7):
        raise LookupError


def test_one_cache_alone(own: None) -> None:
    one, other = MLCache("one", "pages"), MLCache("other", "pages")
    with assert_cache(calls=1, cache=one), count_cache() as counts:
        one.get("k", lambda: 1)
        other.get("k", lambda: 1)
        one.get("k")
    assert (counts.calls, counts.hits) == (2, 1)


def test_a_cache_of_django(own: None) -> None:
    cache: Any = caches["default"]
    with assert_cache(hits=3, misses=2, cache=cache):
        cache.get("k")
        cache.set_many({"k": "v", "n": 1})
        cache.get("k")
        cache.get_many(["k", "n", "absent"])


def test_nothing_is_cached_in_a_block(own: None) -> None:
    runs: list[int] = []

    @cached(name="disabled", tags=("red",))
    def load(number: int) -> int:
        runs.append(number)
        return number

    @cache_view(60)
    def view(request: HttpRequest) -> HttpResponse:
        runs.append(-1)
        return HttpResponse("x")

    cache: Any = caches["default"]
    load(1)
    view(RequestFactory().get("/page/"))
    cache.set("before", "v")
    cache.set("tagged", "v", tags=("blue",))
    runs.clear()
    with caches_disabled():
        assert [load(1), load(1), load(2)] == [1, 1, 2]
        view(RequestFactory().get("/page/"))
        view(RequestFactory().get("/page/"))
        assert runs == [1, 1, 2, -1, -1]
        assert cache.get("before") is None
        cache.set("k", "v")
        cache.set_many({"k": "v"})
        assert cache.add("k", "v")
        assert cache.get_many(["k", "before"]) == {}
        assert cache.get_or_set("k", lambda: 7) == 7
        assert cache.incr("n", ttl=60) == 1
        assert not cache.touch("before")
        assert list(cache.iter_keys("*")) == []
        assert cache.ttl("before") == 0
        cache.invalidate_tags("blue")
        late: Any = MLCacheBackend("default", {})
        late.set("k", "v")
        assert late.get("k") is None
        created = MLCache("created", "pages")
        created.set("k", 1)
        assert created.get("k") is None
        assert created.get_many(["k"]) == {}
        bulk = created.new_bulk().add("k", lambda: 8)
        assert created.get_bulk(bulk)[0].value == 8
        created.invalidate_tags("red")
        created.delete("k")
    assert load(2) == 2
    assert runs[-1] == 2, "nothing was stored in the block"
    assert cache.get("before") == "v"
    assert cache.get("k") is None
    assert cache.get("tagged") == "v"
    assert late.get("k") is None
    late.set("k", "v")
    assert late.get("k") == "v"
    created.set("k", 1)
    assert created.get("k") == 1
    with assert_cache(hits=1, calls=0):
        load(1)


def test_nothing_is_cached_in_a_block_of_asyncio(own: None) -> None:
    @cached(name="disabled-too")
    async def load(number: int) -> int:
        return number

    async def work() -> None:
        cache: Any = caches["default"]
        await load(1)
        with caches_disabled(), assert_cache(hits=0, calls=2):
            await load(1)
            await load(1)
            await cache.aset("k", "v")
            assert await cache.aget("k") is None
            assert await cache.aget_many(["k"]) == {}
            assert [key async for key in cache.aiter_keys("*")] == []
        with assert_cache(calls=0):
            await load(1)

    asyncio.run(work())


def test_blocks_may_be_nested_and_end_with_an_error(own: None) -> None:
    cache = MLCache("nested", "pages")
    with caches_disabled():
        with pytest.raises(LookupError), caches_disabled():
            raise LookupError
        cache.set("k", 1)
        assert cache.get("k") is None
    cache.set("k", 1)
    assert cache.get("k") == 1
