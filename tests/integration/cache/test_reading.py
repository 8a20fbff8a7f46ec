"""Times to live, promotion, serializers, errors, locks: other behaviour of `get`."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from resty_django.cache import (
    LRU,
    BadKey,
    BadOption,
    BadValue,
    CallbackFailed,
    Fresh,
    Hit,
    Level,
    LockFailed,
    MLCache,
    SerializerFailed,
    SourceError,
)
from resty_django.shdict import Unavailable
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Shared, fails, raises, value
from tests.pauses import Pauses
from tests.servers import free_port

LOCK = "lua-resty-mlcache:lock:c:k"

# --- times to live ---


@pytest.mark.parametrize("wrong", ["7", True, float("nan")])
async def test_a_time_of_the_callback_that_is_none_is_ignored(make: Make, clock: Clock, wrong: Any) -> None:
    a = make(ttl=100)
    assert await a.lookup("k", value(Fresh("v", wrong))) == ("v", None, 3)
    clock.advance(100)
    assert await a.lookup("k") == ("v", None, 1)
    clock.advance(0.001)
    assert await a.lookup("k") == (None, None, -1)


@pytest.mark.parametrize(("ahead", "lives"), [(4, 3), (-4, 10), (-400, 10)])
async def test_a_machine_whose_clock_is_wrong(make: Make, clock: Clock, ahead: float, lives: float) -> None:
    """Where it is ahead a value leaves its L1 early. Where it is behind the value may outlive L2 there: by no more
    than the clocks differ, and never beyond its time to live after the promotion."""
    a, b = make("A", ttl=10), make("B", clock=lambda: clock() + ahead)
    await a.lookup("k", value("v"))
    clock.advance(3)
    assert await b.lookup("k") == ("v", None, 2)
    clock.advance(lives - 0.001)
    assert await b.lookup("k") == ("v", None, 1)
    clock.advance(0.002)
    assert (await b.lookup("k"))[2] == (2 if 3 + lives < 10 else -1)


async def test_a_record_that_is_expired_by_its_head_is_not_promoted(make: Make, shared: Shared) -> None:
    a, b = make("A", ttl=1), make("B")
    await a.lookup("k", value("v"))
    shared("values").expire("c:k", 100)
    a.cache.clock.advance(5)  # type: ignore[attr-defined]
    assert await b.lookup("k") == ("v", None, 2)
    assert await b.lookup("k") == ("v", None, 2)


# --- serializers ---


async def test_the_serializer_of_l1_runs_once_for_each_promotion(make: Make) -> None:
    serialized: list[Any] = []

    def serialize(raw: Any) -> Any:
        serialized.append(raw)
        return {"made of": raw}

    a, b = make("A", l1_serializer=serialize), make("B", l1_serializer=serialize)
    expected = {"made of": "v"}
    assert await a.lookup("k", value("v")) == (expected, None, 3)
    assert await a.lookup("k") == (expected, None, 1)
    assert serialized == ["v"]
    assert await b.lookup("k") == (expected, None, 2)
    assert await b.lookup("k") == (expected, None, 1)
    assert serialized == ["v", "v"]
    assert (await b.do("peek", "k")).value == "v"
    assert await a.lookup("none", value(None)) == (None, None, 3)
    assert await a.lookup("gone", value(Fresh("v", -1))) == ("v", None, 3)
    assert serialized == ["v", "v"]
    await a.do("set", "k", "w")
    assert await a.lookup("k") == ({"made of": "w"}, None, 1)


def broken(raw: Any) -> Any:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("serializer", "message"),
    [
        (broken, "l1_serializer threw an error: broken"),
        (lambda raw: None, "l1_serializer returned None; it must return a value"),
    ],
)
async def test_a_failing_l1_serializer_does_not_change_l2(make: Make, serializer: Any, message: str) -> None:
    a, b = make("A", l1_serializer=serializer), make("B")
    _, error, level = await a.lookup("k", value("v"))
    assert (error or "").startswith(message)
    assert level is None
    assert (await a.lookup("k"))[1] == error, "from L2, too"
    assert await b.lookup("k") == ("v", None, 2)
    assert await a.lookup("k", l1_serializer=str.upper) == ("V", None, 2), "the option of a call takes precedence"
    await b.do("set", "k", "w")
    with pytest.raises(SerializerFailed):
        await a.do("set", "k", "x")
    assert await b.update() is None
    assert await b.lookup("k") == ("x", None, 2)


async def test_a_resurrected_value_is_stored_unchanged_and_serialized_once(make: Make, clock: Clock) -> None:
    serialized: list[Any] = []

    def serialize(raw: Any) -> Any:
        serialized.append(raw)
        return [raw]

    a = make("A", ttl=1, resurrect_ttl=10, l1_serializer=serialize)
    await a.lookup("k", value("v"))
    clock.advance(2)
    assert await a.lookup("k", fails("down")) == (["v"], None, 4)
    assert await a.lookup("k", fails("down")) == (["v"], None, 1)
    assert (await a.do("peek", "k")).value == "v"
    assert serialized == ["v", "v"]


class Complexes:
    """Complex numbers as pairs."""

    def encode(self, value: complex, /) -> Any:
        return value.real, value.imag

    def decode(self, data: Any, /) -> complex:
        return complex(*data)


async def test_a_serializer_for_other_types(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    a, b = make("A", serializer=Complexes()), make("B", serializer=Complexes())
    assert await a.lookup("k", value(1 + 2j)) == (1 + 2j, None, 3)
    assert await b.lookup("k") == (1 + 2j, None, 2)
    assert await a.lookup("none", value(None)) == (None, None, 3)
    assert await b.lookup("none") == (None, None, 2)
    _, error, _ = await a.lookup("text", value("no complex number"))
    assert "The serializer cannot encode a str" in (error or "")
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        without = make("C", serializer=None)
        await without.do("set", "k", "no pair at all")
        await b.update()
        assert await b.lookup("k", value(3j)) == (3j, None, 3), "what it cannot read is a miss"
    assert "cannot decode the key 'k'" in caplog.text
    assert await make("D", serializer=Complexes()).lookup("k") == (3j, None, 2)


async def test_a_value_that_l2_cannot_hold(make: Make, shared: Shared) -> None:
    a = make()
    got, error, level = await a.lookup("k", value({1, 2}))
    assert (got, level) == (None, None)
    assert error is not None
    assert error.startswith("A value of type set cannot be cached. Use None,")
    assert await a.lookup("k", value((1, "x"))) == ([1, "x"], None, 3), "the lock is free again"
    with pytest.raises(BadValue):
        await a.do("set", "k", object())


@pytest.mark.parametrize("raw", ["a text", 7, b"", b"\xc1", b"\xc1" + bytes(17) + b"\xc1", {"a": 1}])
async def test_a_record_of_another_program_is_a_miss(
    make: Make, shared: Shared, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = make("A"), make("B")
    shared("values").set("c:k", raw)
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        assert await a.lookup("k") == (None, None, -1)
        assert await a.lookup("k", value("v")) == ("v", None, 3)
    assert "cannot be read; it counts as absent" in caplog.text
    assert await b.lookup("k") == ("v", None, 2)


# --- callbacks and errors ---


async def test_get_returns_only_the_value_and_raises(make: Make) -> None:
    a = make()
    assert await a.do("get", "k") is None
    with pytest.raises(CallbackFailed, match=r"^callback threw an error: boom$") as caught:
        await a.do("get", "k", raises(ValueError("boom")))
    assert isinstance(caught.value.error, ValueError)
    assert caught.value.__cause__ is caught.value.error
    with pytest.raises(SourceError, match="down"):
        await a.do("get", "k", fails("down"))
    assert await a.do("get", "k", value("v")) == "v"
    assert await a.do("get", "k", raises(ValueError("not called"))) == "v"
    assert await a.do("lookup", "k") == Hit("v", Level.L1)


async def test_exceptions_that_count_as_a_failing_source(make: Make, clock: Clock) -> None:
    a = make(ttl=1, resurrect_ttl=10, failures=(OSError,))
    await a.lookup("k", value("v"))
    clock.advance(2)
    assert (await a.lookup("k", raises(ValueError("boom"))))[1] == "callback threw an error: boom"
    assert await a.lookup("k", raises(ConnectionError("refused"))) == ("v", None, 4)
    with pytest.raises(SourceError, match="refused") as caught:
        await a.do("get", "other", raises(ConnectionError("refused")))
    assert isinstance(caught.value.__cause__, ConnectionError)


@pytest.mark.parametrize("error", [StopIteration("x"), TimeoutError("x"), GeneratorExit("x")])
async def test_errors_that_generators_and_loops_know(make: Make, shared: Shared, error: BaseException) -> None:
    a = make()

    def callback() -> None:
        raise error

    if isinstance(error, Exception):
        with pytest.raises(CallbackFailed):
            await a.do("get", "k", callback)
    else:
        with pytest.raises(BaseException):  # noqa: B017
            await a.do("get", "k", callback)
        shared("values").delete(LOCK)
    assert await a.lookup("k", value("v")) == ("v", None, 3), "the lock is free"


async def test_coroutine_functions_from_sync_code_and_functions_from_async_code(shared: Shared, clock: Clock) -> None:
    cache = MLCache("c", shared("values"), lru=LRU(9, clock), clock=clock)
    thread = threading.get_ident()

    async def later(number: int) -> list[Any]:
        await asyncio.sleep(0)
        return [number, threading.get_ident() == thread]

    def now(number: int) -> list[Any]:
        return [number, threading.get_ident() == thread]

    assert await cache.aget("a", later, 1) == [1, True]
    assert await cache.aget("b", now, 2) == [2, False], "a plain function must not block the loop"
    assert await cache.aget("c", lambda number: later(number), 3) == [3, True]
    assert await asyncio.to_thread(cache.get, "d", later, 4) == [4, False]
    assert cache.get("e", now, 5) == [5, True]


async def test_wrong_arguments_raise_but_not_on_a_hit_of_l1(make: Make) -> None:
    a = make()
    for call in (a.do("get", None), a.do("get", "")):
        with pytest.raises(BadKey):
            await call
    for wrong in ({"ttl": -1}, {"unknown": 1}):
        with pytest.raises(BadOption):
            await a.do("get", "k", value("v"), **wrong)
    with pytest.raises(BadOption, match="callback must be"):
        await a.do("get", "k", 7)
    await a.do("get", "k", value("v"))
    assert await a.do("get", "k", 7, ttl=-1, unknown=1) == "v"


async def test_keys_of_other_types_are_their_text(make: Make) -> None:
    a, b = make("A"), make("B")
    await a.lookup("7", value("seven"))
    for key in (7, "7", b"7"):
        assert await a.do("lookup", key) == Hit("seven", Level.L1)
    assert await b.do("get", 7) == "seven"
    assert await b.do("get", 7) == "seven"
    assert await b.do("get", [1]) is None, "a key that cannot be hashed has a text, too"
    assert await b.do("get", True, value("true")) == "true"
    assert await b.do("get", 1) is None


# --- the lock ---


async def test_the_lock_is_free_after_everything(make: Make, shared: Shared) -> None:
    a = make()
    for callback in (value("v"), raises(ValueError("boom")), fails("down"), value({1})):
        await a.lookup("k", callback)
        assert shared("values").get(LOCK) is None
        await a.do("delete", "k")


async def test_the_lock_is_held_while_the_callback_runs(make: Make, shared: Shared) -> None:
    a = make(shm_locks=shared("locks"), lock_options={"exptime": 7})
    held: list[Any] = []
    await a.lookup("k", lambda: held.append(shared("locks").ttl(LOCK)))
    assert held == [7]
    assert shared("values").get_keys() == ["c:k"]


async def test_a_lock_that_was_lost_meanwhile_is_not_an_error(make: Make, shared: Shared) -> None:
    a = make()

    def slow() -> str:
        shared("values").delete(LOCK)
        shared("values").add(LOCK, "the next")
        return "v"

    assert await a.lookup("k", slow) == ("v", None, 3)
    assert shared("values").get(LOCK) == "the next"


@pytest.mark.parametrize("resurrect_ttl", [None, 10])
async def test_a_lock_that_stays_held_is_an_error_unless_there_is_a_stale_value(
    make: Make, shared: Shared, clock: Clock, naps: Pauses, resurrect_ttl: int | None
) -> None:
    a, b = make("A", ttl=1), make("B", ttl=1, resurrect_ttl=resurrect_ttl)
    await a.lookup("k", value("v"))
    clock.advance(1.5)
    shared("values").add(LOCK, "a third", 30)
    for _ in range(2):
        began = clock()
        got, error, level = await b.lookup("k", value("new"))
        if resurrect_ttl:
            assert (got, error, level) == ("v", None, 4)
        else:
            assert (got, level) == (None, None)
            assert (error or "").startswith("could not acquire callback lock: timeout")
        assert clock() - began == pytest.approx(5)
    assert b.runs == 0


async def test_a_lock_that_is_freed_after_the_value_was_stored(
    make: Make, shared: Shared, clock: Clock, naps: Pauses
) -> None:
    a, b = make("A"), make("B")
    shared("values").add(LOCK, "a third", 30)

    def store() -> None:
        a.cache.set("k", "of the third")
        shared("values").delete(LOCK)

    naps.after(200, store)
    began = clock()
    assert await b.lookup("k", value("own")) == ("of the third", None, 2)
    assert clock() - began == pytest.approx(0.255)
    assert b.runs == 0


async def test_options_of_the_lock(make: Make, shared: Shared, naps: Pauses) -> None:
    a = make(lock_options={"timeout": 2})
    shared("values").add(LOCK, "a third")
    await a.lookup("k", value("v"))
    assert sum(naps.slept) == 2000
    await a.lookup("k", value("v"), lock_options={"timeout": 0})
    assert sum(naps.slept) == 2000


async def test_a_set_while_the_callback_runs_is_newer(make: Make) -> None:
    a, b = make("A"), make("B")

    def slow() -> str:
        b.cache.set("k", "new")
        return "old"

    assert await a.lookup("k", slow) == ("old", None, 3)
    assert await a.lookup("k") == ("new", None, 2)


async def test_threads_and_tasks_that_read_the_same_cold_key(shared: Shared) -> None:
    """Of one process, without the clock of the test: the source is asked once for all of them."""
    cache = MLCache("c", shared("values"), lru=LRU(9))
    runs: list[str] = []

    def source() -> str:
        runs.append("thread")
        time.sleep(0.05)
        return "of a thread"

    async def asource() -> str:
        runs.append("task")
        await asyncio.sleep(0.05)
        return "of a task"

    answers = await asyncio.gather(
        *(asyncio.to_thread(cache.get, "k", source) for _ in range(4)), *(cache.aget("k", asource) for _ in range(20))
    )
    assert len(runs) == 1
    assert set(answers) == {f"of a {runs[0]}"}


async def test_a_task_that_is_cancelled_lets_go_of_the_lock(shared: Shared) -> None:
    cache = MLCache("c", shared("values"), lru=LRU(9))
    inside = asyncio.Event()

    async def source() -> None:
        inside.set()
        await asyncio.sleep(1000)

    task = asyncio.create_task(cache.aget("k", source))
    await asyncio.wait_for(inside.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await cache.aget("k", value("v")) == "v"


@pytest.mark.parametrize("engine", ["lmdb"], indirect=True)
def test_an_abandoned_call_releases_the_lock(shared: Shared) -> None:
    cache = MLCache("c", shared("values"), lru=LRU(9))

    @types.coroutine
    def never() -> Iterator[None]:
        yield

    async def source() -> None:
        await never()

    call = cache.aget("k", source)
    call.send(None)
    assert shared("values").get(LOCK) is not None
    call.close()
    gc.collect()
    assert cache.get("k", value("v")) == "v"


@pytest.mark.redis
async def test_a_dictionary_of_locks_that_is_down(make: Make, settings: Any) -> None:
    b = make()
    url = f"redis://127.0.0.1:{free_port()}/0"
    settings.CACHES = {**settings.CACHES, "down": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
    a = make(shm_locks=RedisDict("down", alias="down"))
    with pytest.raises(LockFailed, match=r"^could not acquire callback lock: The shared dictionary 'down'"):
        await a.do("get", "k", value("v"), on_error="raise")
    with pytest.raises(LockFailed, match=r"^could not acquire callback lock: The store redis:down is bypassed"):
        await a.do("get", "k", value("v"), on_error="raise")
    assert await b.lookup("k", value("v")) == ("v", None, 3)
    assert await a.lookup("l", value("w")) == ("w", None, 3), "with a lock in this process"
    assert await b.lookup("l") == ("w", None, 2)
    c = MLCache("c", RedisDict("down", alias="down"), lru=LRU(9), on_error="raise")
    with pytest.raises(Unavailable):
        c.get("k", value("v"))
