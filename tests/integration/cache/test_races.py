"""Events between a read or write of L2 and the moment when L1 stores the value: no old value stays in L1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from resty_django import events
from resty_django.cache import LRU, MLCache
from resty_django.cache.broadcasts.channel import INVALIDATIONS
from resty_django.cache.broadcasts.events import EVENT_SOURCE
from resty_django.shdict import SharedDict, shdicts
from tests.integration.cache.conftest import Make, Process, Shared, value
from tests.integration.cache.tools import Hub
from tests.servers import eventually
from tests.threads import together

Then = Callable[[], object]


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`after(dictionary, call, one, two)`: hold the result of this call for the key `k` of the cache `c` until another
    thread has done `one`; the second time, until it has done `two`; later calls do not wait."""

    def after(dictionary: SharedDict, call: str, *then: Then) -> None:
        actions = list(then)
        original, twin = getattr(dictionary, call), getattr(dictionary, f"a{call}")

        def stop(key: str | list[str]) -> None:
            if key in ("c:k", ["c:k"]) and actions:
                together(actions.pop(0))

        def called(key: Any, *args: Any) -> Any:
            result = original(key, *args)
            stop(key)
            return result

        async def awaited(key: Any, *args: Any) -> Any:
            before = len(actions)
            result = await twin(key, *args)
            if len(actions) == before:  # LMDB's twin calls the other one
                stop(key)
            return result

        monkeypatch.setattr(dictionary, call, called)
        monkeypatch.setattr(dictionary, f"a{call}", awaited)

    return after


After = Callable[..., None]


@pytest.fixture
def pair(make: Make, shared: Shared) -> tuple[Process, Process]:
    """Two processes whose locks are not in L2."""
    return make("A", shm_locks=shared("locks")), make("B", shm_locks=shared("locks"))


Pair = tuple[Process, Process]


MEDDLERS: dict[str, Callable[[MLCache, MLCache], list[Then]]] = {
    "another process sets": lambda a, b: [partial(b.set, "k", "new"), a.update],
    "another process deletes": lambda a, b: [partial(b.delete, "k"), a.update],
    "another process purges": lambda a, b: [b.purge, a.update],
    "another thread sets": lambda a, b: [partial(a.set, "k", "new")],
    "another thread sets twice": lambda a, b: [partial(a.set, "k", "newer"), partial(a.set, "k", "new")],
    "another thread refreshes": lambda a, b: [partial(a.refresh, "k", value("new"))],
    "another thread deletes": lambda a, b: [partial(a.delete, "k")],
    "another thread purges": lambda a, b: [a.purge],
}


def all_of(*steps: Then) -> Then:
    return lambda: [step() for step in steps]


@pytest.fixture(params=MEDDLERS)
def meddle(request: pytest.FixtureRequest, pair: Pair) -> Then:
    a, b = pair
    return all_of(*MEDDLERS[request.param](a.cache, b.cache))


async def agrees(process: Process) -> None:
    """L1 has what L2 has, and gets it again when it was left alone."""
    peeked = await process.do("peek", "k")
    in_l2 = None if peeked is None else peeked.value
    assert in_l2 in ("new", None)
    assert (await process.lookup("k"))[0] == in_l2
    await process.do("set", "k", "last")
    assert await process.lookup("k") == ("last", None, 1)


async def test_reading_l2_while_others_write(pair: Pair, shared: Shared, after: After, meddle: Then) -> None:
    a, b = pair
    await b.do("set", "k", "old")
    await a.do("update")
    after(shared("values"), "get", meddle)
    assert (await a.lookup("k"))[:2] == ("old", None)
    await agrees(a)


async def test_reading_many_keys_while_others_write(pair: Pair, shared: Shared, after: After, meddle: Then) -> None:
    a, b = pair
    await b.do("set", "k", "old")
    await a.do("update")
    after(shared("values"), "get_many", meddle)
    bulk = a.cache.new_bulk().add("k", a.callback(value("unused")))
    assert [result.value for result in await a.do("get_bulk", bulk)] == ["old"]
    await agrees(a)


@pytest.mark.parametrize("options", [{"resurrect_ttl": 1}, {}], ids=["before the lock", "under the lock"])
async def test_looking_again_while_others_write(
    pair: Pair, shared: Shared, after: After, meddle: Then, options: dict[str, int]
) -> None:
    a, b = pair
    after(shared("values"), "get", all_of(partial(b.cache.set, "k", "old"), a.cache.update))
    after(shared("values"), "get_stale", meddle)
    assert await a.lookup("k", value("unused"), **options) == ("old", None, 2)
    await agrees(a)


async def test_setting_while_others_write(pair: Pair, shared: Shared, after: After, meddle: Then) -> None:
    a, _ = pair
    after(shared("values"), "set", meddle)
    await a.do("set", "k", "old")
    await agrees(a)


async def test_storing_for_the_callback_while_others_write(
    pair: Pair, shared: Shared, after: After, meddle: Then
) -> None:
    a, _ = pair
    after(shared("values"), "add", meddle)
    assert await a.lookup("k", value("old")) == ("old", None, 3)
    await agrees(a)


async def test_reading_a_key_that_another_thread_writes(pair: Pair, shared: Shared, after: After) -> None:
    """A reader that is through before the writer comes to L1 leaves it its place there."""
    a, _ = pair
    after(shared("values"), "set", lambda: a.cache.get("k"))
    await a.do("set", "k", "new")
    assert await a.lookup("k") == ("new", None, 1)


def test_reading_while_the_event_thread_receives(site: Any, after: After) -> None:
    reader = MLCache("c", lru=LRU(9))
    writer = MLCache("c", lru=LRU(9), ipc=Hub().channel("other"))
    writer.set("k", "old")
    events.start()
    assert eventually(events.running)

    def meddle() -> None:
        writer.set("k", "new")
        before = reader.lru.version("k")
        events.post(EVENT_SOURCE, f"{INVALIDATIONS}c", ["another process", "k"])
        assert eventually(lambda: reader.lru.version("k") > before)

    after(shdicts["default"], "get", meddle)
    assert reader.get("k") == "old"
    assert reader.get("k") == "new"


async def test_setting_many_keys_while_others_write(pair: Pair, shared: Shared, after: After, meddle: Then) -> None:
    a, _ = pair
    dictionary = shared("values")
    original, twin = dictionary.set_many, dictionary.aset_many
    actions = [meddle]

    def called(*args: Any) -> Any:
        result = original(*args)
        if actions:
            together(actions.pop())
        return result

    async def awaited(*args: Any) -> Any:
        return called(*args)

    dictionary.set_many, dictionary.aset_many = called, awaited  # type: ignore[method-assign]
    try:
        await a.do("set_many", {"k": "old", "other": 1})
    finally:
        dictionary.set_many, dictionary.aset_many = original, twin  # type: ignore[method-assign]
    await a.do("update")
    await agrees(a)
