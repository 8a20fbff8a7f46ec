"""Locks on both engines, sync and async: who holds one, for how long, and what becomes of one that was lost."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from resty_django import shdict
from resty_django.lock import AlreadyLocked, Lock, LockError, LockLost, LockTimeout, NotLocked, lock, locked
from resty_django.shdict import BadKey, SharedDict, UnknownDict
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests import processes
from tests.dictionaries import MIB, Clock
from tests.pauses import Pauses
from tests.threads import together

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]


class Twin:
    """The calls of a lock to be awaited: sync or, where `twins`, those with an `a`."""

    def __init__(self, lock: Lock, twins: bool) -> None:
        self.lock = lock
        self.twins = twins

    def __getattr__(self, name: str) -> Any:
        async def awaited(*args: Any) -> Any:
            result = getattr(self.lock, f"a{name}" if self.twins else name)(*args)
            return await result if inspect.isawaitable(result) else result

        return awaited


@pytest.fixture(params=["call", "twin"])
def make(request: pytest.FixtureRequest, dictionary: SharedDict) -> Callable[..., Twin]:
    """A lock on `dictionary`, and again with the calls for asyncio."""

    def make(**options: float) -> Twin:
        return Twin(Lock(dictionary, **options), request.param == "twin")

    return make


async def test_a_free_lock_is_acquired_at_once(make: Callable[..., Twin], dictionary: SharedDict, naps: Pauses) -> None:
    holder = make()
    assert await holder.acquire("a") == 0
    assert holder.lock.locked
    assert dictionary.ttl("a") == 30
    await holder.release()
    assert not holder.lock.locked
    assert dictionary.get("a") is None
    assert naps.slept == []


async def test_a_lock_held_for_200_ms_is_acquired_after_255(
    make: Callable[..., Twin], dictionary: SharedDict, naps: Pauses
) -> None:
    dictionary.add("a", "somebody's", 30)
    naps.after(200, lambda: dictionary.delete("a"))
    holder = make()
    assert await holder.acquire("a") == pytest.approx(0.255)
    assert naps.slept == [1, 2, 4, 8, 16, 32, 64, 128]
    await holder.release()


async def test_a_lock_that_stays_held_is_given_up_after_the_timeout(
    make: Callable[..., Twin], dictionary: SharedDict, naps: Pauses, clock: Clock
) -> None:
    dictionary.add("a", "somebody's", 30)
    began = clock()
    with pytest.raises(LockTimeout, match=r"^timeout: .*'a'"):
        await make().acquire("a")
    assert clock() - began == pytest.approx(5)
    assert naps.slept[-3:] == [500, 500, 489]
    assert dictionary.get("a") == "somebody's"


async def test_a_timeout_of_0_tries_once(make: Callable[..., Twin], dictionary: SharedDict, naps: Pauses) -> None:
    dictionary.add("a", "somebody's", 30)
    with pytest.raises(TimeoutError):
        await make(timeout=0).acquire("a")
    assert naps.slept == []


async def test_an_object_holds_one_lock(make: Callable[..., Twin]) -> None:
    holder = make()
    await holder.acquire("a")
    for key in ("a", "b"):
        with pytest.raises(AlreadyLocked, match=r"^locked: .*'a'"):
            await holder.acquire(key)
    await holder.release()
    await holder.acquire("b")
    await holder.release()


async def test_after_a_timeout_the_object_may_be_used_again(
    make: Callable[..., Twin], dictionary: SharedDict, naps: Pauses
) -> None:
    dictionary.add("a", "somebody's", 30)
    holder = make()
    with pytest.raises(LockTimeout):
        await holder.acquire("a")
    assert not holder.lock.locked
    dictionary.delete("a")
    assert await holder.acquire("a") == 0
    await holder.release()


async def test_a_lock_that_is_not_held_cannot_be_released_or_extended(make: Callable[..., Twin]) -> None:
    holder = make()
    for call in (holder.release, holder.expire):
        with pytest.raises(NotLocked, match=r"^unlocked"):
            await call()
    await holder.acquire("a")
    await holder.release()
    with pytest.raises(NotLocked):
        await holder.release()


async def test_a_lock_expires(make: Callable[..., Twin], clock: Clock, naps: Pauses) -> None:
    first, second = make(exptime=2), make(exptime=2)
    await first.acquire("a")
    naps.after(1999, lambda: None)
    assert await second.acquire("a") == pytest.approx(2, abs=0.001)
    await second.release()


async def test_a_holder_that_overran_does_not_free_the_lock_of_its_successor(
    make: Callable[..., Twin], dictionary: SharedDict, clock: Clock
) -> None:
    first, second = make(exptime=1), make(exptime=30)
    await first.acquire("a")
    clock.advance(1)
    await second.acquire("a")
    with pytest.raises(LockLost, match=r"^not found: .*'a'"):
        await first.expire()
    with pytest.raises(LockLost):
        await first.release()
    assert dictionary.ttl("a") == 30
    with pytest.raises(NotLocked):
        await first.release()
    await second.release()
    assert dictionary.get("a") is None


async def test_a_lock_can_be_extended(make: Callable[..., Twin], dictionary: SharedDict, clock: Clock) -> None:
    holder = make(exptime=10)
    await holder.acquire("a")
    clock.advance(6)
    await holder.expire()
    assert dictionary.ttl("a") == 10
    await holder.expire(100)
    assert dictionary.ttl("a") == 100
    clock.advance(100)
    with pytest.raises(LockLost, match=r"^not found"):
        await holder.expire()
    assert holder.lock.locked
    with pytest.raises(LockLost):
        await holder.release()


async def test_keys_have_separate_locks(make: Callable[..., Twin]) -> None:
    locks = [make(timeout=0) for _ in range(3)]
    for number, holder in enumerate(locks):
        await holder.acquire(number)
    assert all(holder.lock.locked for holder in locks)
    for holder in locks:
        await holder.release()


async def test_a_wrong_key_is_refused_and_nothing_is_held(make: Callable[..., Twin]) -> None:
    holder = make()
    for key in (None, "", "x" * 70_000):
        with pytest.raises(BadKey):
            await holder.acquire(key)
    assert not holder.lock.locked


async def test_an_unknown_dictionary_is_named() -> None:
    with pytest.raises(UnknownDict, match="'nowhere'"):
        Lock("nowhere").acquire("a")


# --- blocks and decorators ---


def test_a_block_holds_the_lock_and_gets_the_seconds_waited(dictionary: SharedDict, naps: Pauses) -> None:
    dictionary.add("a", "somebody's", 30)
    naps.after(3, lambda: dictionary.delete("a"))
    with lock("a", dictionary, exptime=60) as waited:
        assert waited == pytest.approx(0.003)
        assert dictionary.ttl("a") == 60
    assert dictionary.get("a") is None


async def test_an_async_block_holds_the_lock(dictionary: SharedDict, naps: Pauses) -> None:
    dictionary.add("a", "somebody's", 30)
    naps.after(3, lambda: dictionary.delete("a"))
    async with Lock(dictionary).on("a") as waited:
        assert waited == pytest.approx(0.003)
        with pytest.raises(LockTimeout):
            async with lock("a", dictionary, timeout=0):
                pytest.fail("the lock is held")
    assert dictionary.get("a") is None


async def test_an_exception_releases_the_lock_and_is_propagated(dictionary: SharedDict) -> None:
    with pytest.raises(ZeroDivisionError), lock("a", dictionary):
        1 / 0  # noqa: B018
    assert dictionary.get("a") is None
    with pytest.raises(ZeroDivisionError):
        async with lock("a", dictionary):
            1 / 0  # noqa: B018
    assert dictionary.get("a") is None


async def test_a_block_that_overran_is_logged(
    dictionary: SharedDict, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with lock("a", dictionary, exptime=1):
        clock.advance(1)
    async with lock("b", dictionary, exptime=1):
        clock.advance(1)
    messages = [record.getMessage() for record in caplog.records if record.name == "resty_django.lock"]
    assert [("'a' expired or was deleted" in text, "'b' expired" in text) for text in messages] == [
        (True, False),
        (False, True),
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


async def test_decorated_functions_hold_the_lock(dictionary: SharedDict) -> None:
    @locked("report:{id}", dictionary, timeout=0)
    def build(id: int) -> int:
        assert dictionary.get(f"report:{id}") is not None
        return id + 1

    @locked("report:{id}", dictionary, timeout=0)
    async def abuild(id: int) -> int:
        with pytest.raises(LockTimeout):
            build(id)
        return build(id + 1)

    assert build(7) == 8
    assert inspect.iscoroutinefunction(abuild)
    assert await abuild(7) == 9
    assert await abuild(7) == 9
    assert dictionary.get("report:7") is None


async def test_decorated_generators_hold_the_lock_while_they_are_iterated(dictionary: SharedDict) -> None:
    @locked("items", dictionary, timeout=0)
    def items() -> Generator[int, int, str]:
        sent = yield 1
        assert sent == 2
        yield 3
        return "end"

    @locked("items", dictionary, timeout=0)
    async def aitems() -> AsyncIterator[int]:
        yield 1
        yield 2

    iterator = items()
    assert dictionary.get("items") is None, "no code of it has run"
    assert next(iterator) == 1
    assert dictionary.get("items") is not None
    with pytest.raises(LockTimeout):
        next(items())
    assert iterator.send(2) == 3
    with pytest.raises(StopIteration) as ended:
        next(iterator)
    assert (ended.value.value, dictionary.get("items")) == ("end", None)

    iterator = items()
    next(iterator)
    iterator.close()
    assert dictionary.get("items") is None

    seen = []
    async for item in aitems():
        seen.append(item)
        assert dictionary.get("items") is not None
    assert (seen, dictionary.get("items")) == ([1, 2], None)

    @locked("items", dictionary, timeout=0)
    def wrapped() -> Any:
        return asyncio.sleep(0)

    with pytest.raises(TypeError, match="returned a coroutine"):
        wrapped()
    assert dictionary.get("items") is None


# --- who vanishes ---


def test_a_garbage_collected_object_releases_its_lock(dictionary: SharedDict) -> None:
    Lock(dictionary).acquire("a")
    gc.collect()
    assert dictionary.get("a") is None


async def test_a_wait_that_is_cancelled_leaves_no_lock(dictionary: SharedDict) -> None:
    Lock(dictionary, timeout=0).acquire("b")
    held = Lock(dictionary)
    held.acquire("a")
    waiter = Lock(dictionary)
    waiting = asyncio.create_task(waiter.aacquire("a"))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not waiter.locked
    held.release()
    assert await waiter.aacquire("a") == 0
    await waiter.arelease()


async def test_a_call_that_is_cancelled_before_its_reply_leaves_no_lock(
    dictionary: SharedDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store has taken the lock, but nobody waits for that any more."""
    aadd = dictionary.aadd
    stored = asyncio.Event()

    async def late(*args: Any) -> Any:
        reply = await aadd(*args)
        stored.set()
        await asyncio.sleep(60)
        return reply

    waiter = Lock(dictionary)
    with monkeypatch.context() as patch:
        patch.setattr(dictionary, "aadd", late)
        waiting = asyncio.create_task(waiter.aacquire("a"))
        await stored.wait()
        assert dictionary.get("a") is not None
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert dictionary.get("a") is None
    assert not waiter.locked


class Switched:
    """Passes all calls on to the dictionary `target`, which a test may replace while a lock is held."""

    def __init__(self, target: SharedDict) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)


@pytest.mark.parametrize("call", ["acquire", "release", "expire"])
async def test_a_store_that_is_down_raises_unavailable(
    call: str, make: Callable[..., Twin], dictionary: SharedDict, redis_cache: str, settings: Any, tmp_path: Path
) -> None:
    holder = make()
    switched: Any = Switched(dictionary)
    holder.lock.dictionary = switched
    if call != "acquire":
        await holder.acquire("a")
    down: SharedDict
    if dictionary.engine == "redis":
        settings.CACHES = {
            "down": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"},
        }
        down = RedisDict("down", alias="down")
    else:
        (tmp_path / "file").touch()
        down = LmdbDict("down", MIB, str(tmp_path / "file"))
    switched.target = down
    with pytest.raises(shdict.Unavailable):
        await getattr(holder, call)(*(["a"] if call == "acquire" else []))
    assert holder.lock.locked is (call == "expire")
    switched.target = dictionary


def test_a_block_does_not_fail_if_the_lock_cannot_be_released(
    dictionary: SharedDict, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with lock("a", dictionary):
        monkeypatch.setattr(type(dictionary), "delete_if", _down)
    assert "A lock could not be released: no answer" in caplog.text


def _down(*args: object) -> bool:
    raise shdict.Unavailable("no answer")


# --- many at once ---


def test_threads_take_turns(dictionary: SharedDict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adds to a number in two steps that nobody else may come between."""
    monkeypatch.setattr(dictionary, "_clock", time.monotonic if dictionary.engine == "lmdb" else None)
    dictionary.set("number", 0)

    def add() -> None:
        for _ in range(20):
            with lock("turn", dictionary, timeout=20, max_step=0.003):
                number = dictionary.get("number")
                time.sleep(0.0005)
                dictionary.set("number", number + 1)

    together(*[add for _ in range(4)])
    assert dictionary.get("number") == 80


async def test_tasks_take_turns(dictionary: SharedDict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "_clock", time.monotonic if dictionary.engine == "lmdb" else None)
    inside = 0
    most = 0

    async def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            async with lock("turn", dictionary, timeout=20, max_step=0.003):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.001)
                inside -= 1

    await asyncio.gather(*(work() for _ in range(4)))
    assert most == 1


def test_a_child_of_a_fork_does_not_hold_what_its_parent_holds(tmp_path: Path) -> None:
    script = """
        import os, warnings
        from resty_django.lock import Lock, NotLocked
        from resty_django.shdict.lmdb import LmdbDict

        warnings.simplefilter("ignore")
        dictionary = LmdbDict("locks", 1 << 20, FOLDER)
        one = Lock(dictionary)
        one.acquire("a")
        pid = os.fork()
        if not pid:
            try:
                one.release()
            except NotLocked:
                print("not locked", flush=True)
            del one
            os._exit(0)
        os.waitpid(pid, 0)
        print(one.locked, dictionary.get("a") is not None)
    """
    done = processes.run(
        [sys.executable, "-c", f"FOLDER = {str(tmp_path)!r}\n" + textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("not locked\nTrue True\n", "")


def test_every_error_of_locks_is_a_lock_error() -> None:
    assert all(issubclass(kind, LockError) for kind in (AlreadyLocked, LockLost, LockTimeout, NotLocked))
