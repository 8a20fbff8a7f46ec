"""Tags of Django's cache over our backend, on both engines, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from redis import Redis

from resty_django.cache import BadOption, ainvalidate_tags, invalidate_tags
from resty_django.cache.backend import entries
from resty_django.cache.backend.store import stores
from resty_django.cache.storage import records
from resty_django.cache.tags.versions import TAG_PREFIX
from tests.integration.cache.backends import Api, fresh

TAGS = ("product:7", "shop:3")
VALUES: list[Any] = [None, "text", 7, 1.5, True, b"x", [1, {"a": 2}], {"a", "b"}, (1, 2)]


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def kind(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Iterator[str]:
    for _ in fresh(request, settings, tmp_path, request.param):
        yield request.param


@pytest.fixture
def api(kind: str) -> Api:
    return Api(kind, twins=kind == "redis")


def forget_l1() -> None:
    for store in stores.values():
        store.lru.flush_all()


async def test_any_value_can_have_tags(api: Api) -> None:
    for content in VALUES:
        await api.set("k", content, tags=TAGS)
        for _ in range(2):
            assert await api.get("k", "absent") == content
        forget_l1()
        assert await api.get_many(["k"]) == {"k": content}
        assert await api.touch("k", 100)
        assert await api.get("k", "absent") == content
        await api.invalidate_tags("shop:3")
        assert await api.get("k", "absent") == "absent"
        assert await api.get_many(["k"]) == {}


async def test_all_calls_that_store_take_tags(api: Api) -> None:
    await api.set_many({"a": 1, "b": [2]}, tags=("x",))
    assert await api.add("c", "3", tags=("x", "y"))
    assert not await api.add("c", "4", tags=("x",))
    await api.set("d", 4)
    assert await api.get_many(["a", "b", "c", "d"]) == {"a": 1, "b": [2], "c": "3", "d": 4}
    await api.invalidate_tags("y")
    assert await api.get_many(["a", "b", "c", "d"]) == {"a": 1, "b": [2], "d": 4}
    await api.invalidate_tags("x")
    assert await api.add("b", "new"), "an invalidated entry does not exist"
    assert await api.get_many(["a", "b", "c", "d"]) == {"b": "new", "d": 4}


@pytest.mark.redis
async def test_add_reads_versions_of_tags_only(
    request: pytest.FixtureRequest, settings: Any, tmp_path: Path, valkey: Redis
) -> None:
    """On Redis, `add` over an entry without tags is one call."""

    def calls() -> int:
        count: int = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
        valkey.config_resetstat()
        return count

    for _ in fresh(request, settings, tmp_path, "redis", LRU_SIZE=0):
        for api in (Api("redis", twins) for twins in (False, True)):
            await api.set("plain", {1, 2})
            await api.set("number", 7)
            await api.set("tagged", "v", tags=("x",))
            for key in ("plain", "tagged"):  # from now on the server knows the scripts
                assert not await api.add(key, "new")
            calls()
            assert not await api.add("plain", "new")
            assert not await api.add("number", 8)
            assert calls() == 2
            assert not await api.add("tagged", "new")
            assert calls() == 2
            assert (await api.get("plain"), await api.get("number"), await api.get("tagged")) == ({1, 2}, 7, "v")


async def test_add_over_items_of_other_programs(api: Api) -> None:
    caches["default"].set("k", 1)
    shm = stores["pages"].shm
    for content in (True, "text", b"", b"\xc1" * 30, [1]):
        shm.set(":1:k", content)
        assert await api.add("k", "new") is False
        assert await api.add("k", "new", 0) is False
        assert shm.get(":1:k") == content
    shm.delete(":1:k")
    shm.rpush(":1:k", 1)
    assert await api.add("k", "new") is False
    assert await api.add("k", "new", 0) is False
    assert shm.llen(":1:k") == 1


async def test_tagged_numbers_cannot_be_incremented(api: Api) -> None:
    await api.set("n", 1, tags=("x",))
    with pytest.raises(TypeError):
        await api.incr("n")


async def test_other_variants_of_the_location(api: Api) -> None:
    """Tags belong to the LOCATION: a cache with another prefix or version has the same ones."""
    caches["prefixed"].set("k", 1, tags=("x",))
    await api.invalidate_tags("x")
    assert caches["prefixed"].get("k") is None


async def test_a_tag_is_invalidated_in_all_caches_of_the_site(api: Api) -> None:
    for call in (invalidate_tags, ainvalidate_tags):
        await api.set("k", "old", tags=("x",))
        assert await api.get("k") == "old"
        result = call("x")
        if result is not None:
            await result
        assert await api.get("k") is None


def test_other_process_drops_its_copy(kind: str) -> None:
    """The event of another process empties L1 of the keys with the tag, and of no others."""
    cache = caches["default"]
    store = cache.store  # type: ignore[attr-defined]
    for key, tags in (("k", ("x",)), ("l", ())):
        cache.set(key, "old", tags=tags)  # type: ignore[call-arg]
        assert cache.get(key) == "old"
    assert store.lru.count() == 2
    store.index.invalidate(store.lru, ["x"])
    assert list(store.lru.items) == [":1:l"]


def test_a_value_whose_version_is_lost_is_absent(kind: str) -> None:
    cache = caches["default"]
    cache.set("k", "old", tags=("x",))  # type: ignore[call-arg]
    store = cache.store  # type: ignore[attr-defined]
    assert store.shm.delete(f"{TAG_PREFIX}{store.name}:x")
    forget_l1()
    assert cache.get("k") is None


def test_versions_of_tags_are_hidden_in_lists_of_keys(kind: str) -> None:
    cache = caches["default"]
    cache.set("k", "old", tags=("x",))  # type: ignore[call-arg]
    assert cache.keys("*") == ["k"]  # type: ignore[attr-defined]


def test_signature_covers_the_tags() -> None:
    raw: Any = entries.encode(b"context", {1, 2}, 0.0, 60.0, {"x": 1})
    assert entries.decode(b"context", raw, 1.0).value == {1, 2}
    end = records.unpacked_head(raw).end
    for tags in ({"y": 1}, {}):
        head = records.packed_head(records.ENTRY | records.SIGNED, 0.0, 60.0, tags)
        with pytest.raises(entries.Foreign):
            entries.decode(b"context", head + raw[end:], 1.0)
    for cut in (5, end - 1):
        with pytest.raises(entries.Foreign):
            entries.decode(b"context", raw[:cut], 1.0)


def test_wrong_tags(kind: str) -> None:
    cache = caches["default"]
    with pytest.raises(BadOption, match="tags"):
        cache.set("k", 1, tags="x")  # type: ignore[call-arg]
    with pytest.raises(BadOption, match=r"Pass each tag as a str"):
        cache.invalidate_tags(7)  # type: ignore[attr-defined]
