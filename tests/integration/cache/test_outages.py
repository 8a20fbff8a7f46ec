"""Stores of caches that are killed, stopped, restarted empty, read-only, or in the hands of another user.

Private names: `_call` and `_acall`, to count and delay the calls that reach a store; `_thread` of a breaker, to wait
for its end; `_check_files_at` of a dictionary, whose next look at its files is minutes away.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from resty_django.cache import LRU, BadOption, CallbackFailed, MLCache, SourceError, cached, current_outages
from resty_django.cache.circuit_breaker.breaker import MAX_PENDING_WRITES, breaker_of
from resty_django.cache.circuit_breaker.process_locks import ProcessLocks
from resty_django.lock import LockTimeout
from resty_django.shdict import BadKey, Unavailable
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.lmdb.files import MEMORY_FOLDER
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.dictionaries import MIB, Clock
from tests.integration.cache.cancelling import settle
from tests.integration.cache.conftest import fails, raises, value
from tests.integration.cache.tools import Hub
from tests.servers import Server

pytestmark = pytest.mark.slow

LOG = "resty_django.cache"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.one() as server:
        yield server


class CountingDict(RedisDict):
    """Counts the calls that reach the client of Redis."""

    tries = 0

    def _call(self, *args: Any, **named: Any) -> Any:
        self.tries += 1
        return super()._call(*args, **named)

    async def _acall(self, *args: Any, **named: Any) -> Any:
        self.tries += 1
        return await super()._acall(*args, **named)


class Site:
    """A cache on a server, whose calls are made in one of the two ways."""

    def __init__(self, server: Server, twins: bool) -> None:
        self.server = server
        self.twins = twins
        self.clock = Clock()
        self.hub = Hub()
        self.shm = CountingDict("values")
        self.runs: list[str] = []
        self.cache = self.make("A")

    def make(self, who: str, **options: Any) -> MLCache:
        lru = LRU(100, self.clock)
        return MLCache("c", self.shm, lru=lru, ipc=self.hub.channel(who), **{"ttl": 30, **options})

    def source(self, answer: Any) -> Callable[[], Any]:
        def called() -> Any:
            self.runs.append(answer)
            return answer

        async def awaited() -> Any:
            return called()

        return awaited if self.twins else called

    async def do(self, name: str, *args: Any, cache: MLCache | None = None, **options: Any) -> Any:
        reply = getattr(cache or self.cache, f"a{name}" if self.twins else name)(*args, **options)
        return await reply if inspect.isawaitable(reply) else reply

    async def lookup(self, key: str, *args: Any, **options: Any) -> tuple[Any, int]:
        hit = await self.do("lookup", key, *args, **options)
        return hit.value, int(hit.level)

    def stop(self) -> None:
        """SIGSTOP: connections stay open, and nobody answers."""
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGSTOP)

    async def over(self) -> None:
        await settle(lambda: not current_outages())


@pytest.fixture(params=["call", "twin"])
def site(request: pytest.FixtureRequest, server: Server) -> Iterator[Site]:
    servers.forget_pools()
    timeouts = {"SOCKET_TIMEOUT": 0.3, "SOCKET_CONNECT_TIMEOUT": 0.3}
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url, "OPTIONS": timeouts}
    with override_settings(CACHES={"default": cache}):
        server.call("FLUSHALL")
        yield Site(server, request.param == "twin")
        if server.process is not None:
            server.process.send_signal(signal.SIGCONT)
    if server.process is None:
        server.start()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOG]


@pytest.mark.redis
async def test_a_killed_store(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert await site.lookup("k", site.source("k1")) == ("k1", 3)
    site.server.kill()
    assert await site.lookup("k", site.source("k2")) == ("k1", 1), "L1, as always"
    assert await site.lookup("n", site.source("n1")) == ("n1", 3), "the source"
    assert await site.lookup("n", site.source("n2")) == ("n1", 1), "kept in L1"
    site.clock.advance(5.001)
    assert await site.lookup("n", site.source("n3")) == ("n3", 3), "for outage_ttl"
    site.clock.advance(25)
    assert await site.lookup("k", site.source("k3")) == ("k1", 4), "stale"
    assert await site.lookup("k") == ("k1", 4)
    site.clock.advance(59.99)
    assert await site.lookup("k", site.source("k4")) == ("k1", 4), "for stale_if_outage after its expiry"
    site.clock.advance(0.02)
    assert await site.lookup("k", site.source("k5")) == ("k5", 3)
    assert await site.lookup("missing") == (None, -1)
    assert await site.do("peek", "k") is None
    (outage,) = current_outages()
    assert (outage.store, outage.calls) == ("redis:default", 7)
    assert abs(time.time() - outage.since) < 60
    site.server.start()
    await site.over()
    assert await site.lookup("k") == ("k5", 1), "until its outage_ttl is over"
    site.clock.advance(5.001)
    assert await site.lookup("k") == (None, -1), "restarted empty"
    assert await site.lookup("k", site.source("k6")) == ("k6", 3)
    assert await site.lookup("k", cache=site.make("B")) == ("k6", 2)
    assert site.runs == ["k1", "n1", "n3", "k5", "k6"]
    await settle(lambda: len(logged(caplog)) == 2)
    texts = logged(caplog)
    assert texts[0].startswith("The store redis:default of caches cannot be used; caches follow their on_error: ")
    assert texts[1].startswith("The store redis:default of caches can be used again after ")
    assert (await site.do("stats")).storeless == 7


@pytest.mark.redis
async def test_a_hanging_store_is_tried_by_no_further_call(site: Site) -> None:
    await site.lookup("k", site.source("k"))
    site.stop()
    before = site.shm.tries
    assert await site.lookup("first", site.source("v")) == ("v", 3)
    assert site.shm.tries == before + 1
    ours = threading.current_thread()
    call = site.shm._call
    tried: list[threading.Thread] = []

    def seen(*args: Any) -> Any:
        tried.append(threading.current_thread())
        return call(*args)

    site.shm._call = seen  # type: ignore[method-assign]
    until = time.monotonic() + 2.5
    rounds = 0
    while time.monotonic() < until or len(tried) < 2:
        rounds += 1
        assert (await site.lookup(f"k{rounds}", site.source("v")))[1] == 3
        await site.do("set", f"s{rounds}", 1)
        await site.do("delete", "k")
        await site.do("update")
        await asyncio.sleep(0.01)
    assert ours not in tried
    assert {thread.name for thread in tried} == {"resty-cache-outage"}
    assert len(tried) < rounds
    site.shm._call = call  # type: ignore[method-assign]
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    await settle(lambda: not any(thread.is_alive() for thread in tried))


@pytest.mark.redis
@pytest.mark.parametrize("call", ["add", "delete_if"])
async def test_a_lock_whose_call_has_timed_out_is_free_after_the_outage(site: Site, call: str) -> None:
    """A server that was stopped carries out the calls that it has got: nobody would hold the lock, for 30 s."""
    name = f"a{call}" if site.twins else call
    original = getattr(site.shm, name)

    def stopping(*args: Any) -> Any:
        if not stopped:
            stopped.append(name)
            site.stop()
        return original(*args)

    stopped: list[str] = []
    setattr(site.shm, name, stopping)
    assert await site.lookup("k", site.source("v")) == ("v", 3)
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    b = site.make("B", lock_options={"timeout": 0})
    await site.do("delete", "k")
    assert await site.lookup("k", site.source("w"), cache=b) == ("w", 3)


@pytest.mark.redis
async def test_a_deleted_key_does_not_come_back(site: Site) -> None:
    b = site.make("B")
    for key in ("deleted", "set", "kept"):
        await site.lookup(key, site.source("old"))
        assert await site.lookup(key, cache=b) == ("old", 2)
    site.stop()
    await site.do("delete", "deleted")
    await site.do("set", "set", "new")
    assert await site.lookup("deleted") == (None, -1)
    assert await site.lookup("set") == ("new", 1)
    site.clock.advance(5.001)
    assert await site.lookup("set") == (None, -1)
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    assert await site.do("peek", "deleted") is None
    assert await site.do("peek", "set") is None
    assert (await site.do("peek", "kept")).value == "old"
    assert ("A", "mlcache:invalidations:c", "deleted") in site.hub.broadcasts
    await site.do("update", cache=b)
    assert await site.lookup("set", cache=b) == (None, -1)
    assert await site.lookup("kept", cache=b) == ("old", 1)


@pytest.mark.redis
async def test_a_deletion_is_put_off_for_each_dictionary(site: Site) -> None:
    """Of two dictionaries of one cache, and of two caches with the same name."""
    caches = [site.make("A", shm_miss=RedisDict("misses"))]
    caches.append(MLCache("c", RedisDict("others"), lru=LRU(100, site.clock), ipc=site.hub.channel("B"), ttl=30))
    for cache in caches:
        for key in ("deleted", "many"):
            await site.do("set", key, "old", cache=cache)
        await site.do("set", "none", None, cache=cache)
    site.stop()
    for cache in caches:
        await site.do("delete", "deleted", cache=cache)
        await site.do("delete_many", ["many", "none"], cache=cache)
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    for cache in caches:
        assert [await site.do("peek", key, cache=cache) for key in ("deleted", "many", "none")] == [None] * 3


@pytest.mark.redis
async def test_one_store_answers_and_another_does_not(site: Site, tmp_path: Path) -> None:
    shm = LmdbDict("values", 4 * MIB, str(tmp_path))
    cache = MLCache("c", shm, shm_miss=site.shm, ipc=site.hub.channel("A"), ttl=30)
    for key in ("deleted", "many"):
        await site.do("set", key, "old", cache=cache)
    site.stop()
    await site.do("delete", "deleted", cache=cache)
    await site.do("delete_many", ["many"], cache=cache)
    assert [await site.lookup(key, cache=cache) for key in ("deleted", "many")] == [(None, -1)] * 2
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    assert [await site.do("peek", key, cache=cache) for key in ("deleted", "many")] == [None] * 2
    shm.close()


@pytest.mark.redis
async def test_a_purge_is_carried_out_afterwards(site: Site) -> None:
    await site.lookup("k", site.source("old"))
    site.stop()
    await site.do("purge")
    assert await site.lookup("k") == (None, -1)
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    assert await site.do("peek", "k") is None
    assert (await site.do("peek", "k", stale=True)).value == "old"
    assert ("A", "mlcache:purge:c", "") in site.hub.broadcasts


@pytest.mark.redis
async def test_tags(site: Site) -> None:
    b = site.make("B")
    for key in ("k", "l"):
        assert await site.lookup(key, site.source("old"), tags=("t",)) == ("old", 3)
        assert await site.lookup(key, cache=b) == ("old", 2)
    site.stop()
    assert await site.lookup("n", site.source("n"), tags=("t",)) == ("n", 3)
    await site.do("set", "s", "s", tags=("t",))
    assert [(await site.lookup(key))[1] for key in ("k", "n", "s")] == [1, 1, 1]
    await site.do("invalidate_tags", "t")
    assert [await site.lookup(key) for key in ("k", "n", "s")] == [(None, -1)] * 3
    with pytest.raises(Unavailable):
        await site.do("invalidate_tags", "t", on_error="raise")
    assert site.server.process is not None
    site.server.process.send_signal(signal.SIGCONT)
    await site.over()
    assert await site.do("peek", "k") is None
    await site.do("update", cache=b)
    assert await site.lookup("l", cache=b) == (None, -1)
    assert await site.lookup("k", site.source("new"), tags=("t",)) == ("new", 3)


@pytest.mark.redis
async def test_raise(site: Site) -> None:
    await site.lookup("k", site.source("v"))
    site.server.kill()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await site.lookup("n", site.source("v"), on_error="raise")
        with pytest.raises(Unavailable):
            await site.lookup("n", on_error="raise")
        for call, args in (("set", ("k", 1)), ("delete", ("k",)), ("purge", ())):
            with pytest.raises(Unavailable):
                await site.do(call, *args, on_error="raise")
    assert await site.lookup("k", on_error="raise") == ("v", 1), "a hit of L1 needs no store"
    careful = site.make("B", on_error="raise")
    bulk = careful.new_bulk().add("n", site.source("v")).add("m", site.source("w"), on_error="source")
    failed, loaded = await site.do("get_bulk", bulk, cache=careful)
    assert isinstance(failed.error, Unavailable)
    assert (loaded.value, loaded.level) == ("w", 3)
    if not site.twins:
        strict = cached(site.cache, name="strict", on_error="raise")(lambda number: number)
        with pytest.raises(Unavailable):
            strict(7)
        with pytest.raises(Unavailable):
            strict.invalidate(7)
    for wrong in ("open", None, 1):
        with pytest.raises(BadOption, match="on_error"):
            await site.lookup("n", on_error=wrong)
    with pytest.raises(BadOption, match=r"on_eror.*on_error"):
        await site.lookup("n", on_eror="raise")


@pytest.mark.redis
async def test_mistakes_still_raise(site: Site) -> None:
    site.server.kill()
    with pytest.raises(CallbackFailed, match="bug"):
        await site.lookup("n", raises(ValueError("bug")))
    with pytest.raises(CallbackFailed, match="no store of mine"):
        await site.lookup("n", raises(Unavailable("no store of mine")))
    with pytest.raises(SourceError, match="no bank"):
        await site.lookup("n", fails("no bank"))
    with pytest.raises(TypeError, match="cannot be cached"):
        await site.lookup("n", value(object()))
    with pytest.raises(BadKey):
        await site.lookup("k" * 70_000, site.source("v"), cache=MLCache("d", LmdbDict("d", MIB, None), lru=LRU(1)))


@pytest.mark.redis
async def test_store_and_source_are_down(site: Site) -> None:
    cache = site.make("A", resurrect_ttl=2, stale_if_outage=0)
    assert await site.lookup("k", value("old"), cache=cache) == ("old", 3)
    site.server.kill()
    site.clock.advance(31)
    assert await site.lookup("k", fails("no bank"), cache=cache) == ("old", 4)
    assert await site.lookup("k", cache=cache) == ("old", 1)
    site.clock.advance(2.001)
    assert await site.lookup("k", value("new"), cache=cache) == ("new", 3)
    with pytest.raises(SourceError):
        await site.lookup("n", fails("no bank"), cache=cache)
    for callback in (fails("no bank"), value("not called")):
        with pytest.raises(SourceError, match="no bank"):
            await site.lookup("m", callback, cache=cache, error_ttl=2)


@pytest.mark.redis
async def test_one_call_of_the_source_at_a_time(site: Site) -> None:
    site.server.kill()
    inside, most = 0, 0
    changing = threading.Lock()

    def slow() -> str:
        nonlocal inside, most
        with changing:
            inside += 1
            most = max(most, inside)
            site.runs.append("run")
        time.sleep(0.1)
        with changing:
            inside -= 1
        return "v"

    async def aslow() -> str:
        return await asyncio.to_thread(slow)

    async def one() -> Any:
        if site.twins:
            return await site.cache.aget("k", aslow)
        return await asyncio.to_thread(site.cache.get, "k", slow)

    assert await asyncio.gather(*(one() for _ in range(8))) == ["v"] * 8
    assert (site.runs, most) == (["run"], 1)
    bulk = site.cache.new_bulk()
    for number in range(6):
        bulk.add(number, aslow if site.twins else slow)
    results = await site.do("get_bulk", bulk)
    assert [(result.value, result.level) for result in results] == [("v", 3)] * 6


@pytest.mark.redis
async def test_the_store_goes_while_the_source_is_asked(site: Site) -> None:
    def kills() -> str:
        site.server.kill()
        return "v"

    assert await site.lookup("k", kills) == ("v", 3)
    assert await site.lookup("k") == ("v", 1)
    site.clock.advance(5.001)
    assert await site.lookup("k") == (None, -1)


@pytest.mark.redis
async def test_a_key_deleted_while_the_source_is_asked(site: Site) -> None:
    site.server.kill()

    def deletes() -> str:
        site.cache.delete("k")
        return "old"

    assert await site.lookup("k", deletes) == ("old", 3)
    assert await site.lookup("k") == (None, -1), "not kept"


@pytest.mark.redis
async def test_refresh_and_decorators(site: Site) -> None:
    site.server.kill()
    assert await site.do("refresh", "k", site.source("v")) == "v"
    assert await site.lookup("k") == ("v", 1)

    if site.twins:

        @cached(site.cache, name="f")
        async def double(number: int) -> int:
            site.runs.append("f")
            return number * 2

        assert [await double(2), await double(2)] == [4, 4]
        await double.ainvalidate(2)
        assert await double(2) == 4
    else:

        @cached(site.cache, name="f")
        def double(number: int) -> int:
            site.runs.append("f")
            return number * 2

        assert [double(2), double(2)] == [4, 4]
        double.invalidate(2)
        assert double(2) == 4
    assert site.runs == ["v", "f", "f"]


@pytest.mark.redis
async def test_a_store_that_refuses_writes_is_read(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    b = site.make("B")
    await site.lookup("k", site.source("v"))
    site.server.call("REPLICAOF", "127.0.0.1", str(servers.free_port()))
    try:
        assert await site.lookup("n", site.source("n1"), cache=b) == ("n1", 3)
        assert current_outages()
        assert await site.lookup("k", cache=b) == ("v", 2), "reads work"
        assert await site.lookup("n", site.source("n2"), cache=b) == ("n1", 1)
        await site.do("delete", "k", cache=b)
        assert await site.lookup("k", cache=b) == (None, -1), "deleted, as far as this process can"
    finally:
        site.server.call("REPLICAOF", "NO", "ONE")
    await site.over()
    assert await site.do("peek", "k") is None
    await settle(lambda: len(logged(caplog)) == 2)


@pytest.mark.redis
async def test_a_bypassed_store_that_is_full(site: Site) -> None:
    """It is full when it answers again, so that what was put off still waits, and it is not read before."""
    await site.lookup("k", site.source("old"), tags=("t",))
    site.server.call("CONFIG", "SET", "maxmemory", 1)
    try:
        site.stop()
        await site.do("delete", "k")
        assert site.server.process is not None
        site.server.process.send_signal(signal.SIGCONT)
        await settle(lambda: breaker_of(site.shm).full)
        assert breaker_of(site.shm).reads_down
        assert await site.lookup("k") == (None, -1)
        assert await site.lookup("n", site.source("n"), tags=("t",), resurrect_ttl=10) == ("n", 3)
        assert await site.do("get_many", ["k", "n"]) == {"n": "n"}
        bulk = site.cache.new_bulk().add("b", site.source("b"))
        assert [result.value for result in await site.do("get_bulk", bulk)] == ["b"]
        assert await site.do("peek", "k") is None
        await site.do("set_many", {"s": 1})
        await site.do("delete", "k")
        await site.do("delete_many", ["k", "n"])
        await site.do("invalidate_tags", "t")
        await site.do("purge")
        with pytest.raises(Unavailable, match="is bypassed"):
            await site.do("get", "k", on_error="raise")
    finally:
        site.server.call("CONFIG", "SET", "maxmemory", 0)
    await site.over()
    assert await site.do("peek", "k", stale=True) is None


@pytest.mark.redis
async def test_more_deletions_than_can_be_remembered(site: Site) -> None:
    site.stop()
    for number in range(MAX_PENDING_WRITES):
        site.cache.delete(number)
    site.cache.delete(0)
    with pytest.raises(Unavailable, match="redis:default"):
        await site.do("delete", "another")


@pytest.mark.redis
def test_a_forked_child_tries_the_store_itself(site: Site) -> None:
    site.server.kill()
    site.cache.get("k", lambda: "v")
    assert breaker_of(site.shm).reads_down
    pid = os.fork()
    if not pid:
        breaker = breaker_of(site.shm)
        fresh = not breaker.down and not breaker.pending
        os._exit(0 if fresh and site.cache.get("n", lambda: "v") == "v" and breaker.reads_down else 1)
    assert os.waitpid(pid, 0)[1] == 0


# --- LMDB ---


async def ask(cache: MLCache, key: str, answer: str) -> tuple[Any, int]:
    hit = cache.lookup(key, value(answer))
    return hit.value, int(hit.level)


def lmdb(folder: Path, size: int = 4 * MIB, **options: Any) -> MLCache:
    return MLCache("c", LmdbDict("values", size, str(folder)), lru=LRU(100), ipc=Hub().channel("A"), **options)


async def test_a_folder_of_another_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid():
        pytest.skip("only root can change the owner of a folder")
    folder = tmp_path / "dicts"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    cache = lmdb(folder)
    assert await ask(cache, "k", "v") == ("v", 3)
    assert await ask(cache, "k", "w") == ("v", 1)
    assert "belongs to 12345" in current_outages()[0].error
    with pytest.raises(Unavailable):
        cache.get("n", value("n"), on_error="raise")
    os.chown(folder, os.geteuid(), os.getegid())
    await settle(lambda: not breaker_of(cache.dictionaries[0]).down)
    assert await ask(cache, "n", "n") == ("n", 3)
    assert cache.peek("n") is not None
    await settle(lambda: len(logged(caplog)) == 2)
    cache.dictionaries[0].close()


async def test_a_process_of_another_user(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can change its user")
    cache = lmdb(tmp_path / "dicts")
    assert await ask(cache, "k", "v") == ("v", 3)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    pid = os.fork()
    if not pid:
        os.setgid(12345)
        os.setuid(12345)
        loaded = cache.get("n", lambda: "n") == cache.get("n", lambda: "m") == "n"
        os._exit(0 if loaded and current_outages() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    cache.dictionaries[0].close()


async def test_a_file_without_room(tmp_path: Path) -> None:
    memory = os.statvfs(MEMORY_FOLDER)
    size = memory.f_blocks * memory.f_frsize * 2
    folder = MEMORY_FOLDER / f"resty-outage-{os.getpid()}"
    cache = lmdb(folder, size)
    try:
        assert await ask(cache, "k", "v") == ("v", 3)
        assert await ask(cache, "k", "w") == ("v", 1)
        assert "There is no space for" in current_outages()[0].error
        cache.set("k", "x")
        cache.delete("k")
    finally:
        breaker = breaker_of(cache.dictionaries[0])
        thread = breaker._thread
        breaker.forget()
        assert thread is not None
        thread.join(30)  # it would make the folder again
        shutil.rmtree(folder)


async def test_a_folder_that_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "dicts"
    cache = lmdb(folder)
    assert await ask(cache, "k", "v") == ("v", 3)
    shutil.rmtree(folder)
    folder.touch()  # a file in its place: it cannot be made again
    dictionary: Any = cache.dictionaries[0]
    dictionary._check_files_at = 0.0
    cache.set("k", "w")
    assert await ask(cache, "k", "x") == ("w", 1)
    assert current_outages()
    folder.unlink()
    await settle(lambda: not breaker_of(dictionary).down)
    assert await ask(cache, "n", "n") == ("n", 3)
    assert cache.peek("n") is not None
    dictionary.close()


# --- the locks of the process ---


def test_an_outage_that_begins_while_the_thread_of_the_last_one_ends(tmp_path: Path) -> None:
    shm = LmdbDict("values", MIB, str(tmp_path))
    breaker = breaker_of(shm)
    outages = []

    def trace(frame: Any, event: str, arg: object) -> Any:
        if frame.f_code.co_name != "_watch":
            return None
        if event == "return" and not outages:  # the thread is still alive
            outages.append(breaker.down)
            breaker.fail(Unavailable("the second outage"), reading=True)
        return trace

    before = threading.gettrace()
    threading.settrace(trace)
    try:
        breaker.fail(Unavailable("the first outage"), reading=True)
    finally:
        threading.settrace(before)  # type: ignore[arg-type]
    until = time.monotonic() + 5
    while (breaker.down or not outages) and time.monotonic() < until:
        time.sleep(0.01)
    assert outages == [False]
    assert not breaker.down
    shm.close()


def test_a_call_that_succeeds_does_not_end_an_outage_in_which_writes_wait(tmp_path: Path) -> None:
    cache = lmdb(tmp_path)
    breaker = cache.levels.breaker
    cache.set("k", "old")
    breaker.fail(Unavailable("no answer"), reading=True)
    breaker.retry_at = 0
    with breaker.trying(breaker.reads_down, (Unavailable,), reading=True):  # another thread deletes meanwhile
        cache.delete("k")
    assert cache.get("k") is None
    until = time.monotonic() + 5
    while breaker.down and time.monotonic() < until:
        time.sleep(0.01)
    assert not breaker.down
    assert cache.peek("k") is None


def test_locks_of_the_process() -> None:
    from resty_django.lock import Lock

    locks: Any = ProcessLocks()
    first, second = Lock(locks, timeout=0), Lock(locks, timeout=0, exptime=0.001)
    first.acquire("k")
    with pytest.raises(LockTimeout):
        second.acquire("k")
    second.acquire("l")
    first.release()
    second.release()
    second.acquire("k")
    time.sleep(0.002)
    first.acquire("k")
    assert not locks.delete_if("k", b"another")
    locks.forget()
    assert Lock(locks, timeout=0).acquire("k") == 0.0


def test_nothing_is_logged_without_an_outage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    cache = lmdb(tmp_path / "dicts")
    cache.get("k", value("v"))
    cache.set("k", "w")
    cache.delete("k")
    assert logged(caplog) == []
    cache.dictionaries[0].close()
