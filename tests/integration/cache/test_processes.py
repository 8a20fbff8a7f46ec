"""Whole processes: a storm on a cold key, a holder of the lock that hangs or is killed, forks, a Redis that goes."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.cache import LRU, CacheError, Level, MLCache, current_outages
from resty_django.shdict import Unavailable, shdicts
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.integration.cache.cancelling import settle
from tests.integration.cache.conftest import value
from tests.integration.events.conftest import Start, ready, workers_of
from tests.servers import until

WORKER = Path(__file__).with_name("worker.py")
NAMES = ("default", "events", "counts")


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def wide_site(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a site whose dictionaries are of each engine."""
    events = {"INTERVAL": 0.01}
    if request.param == "lmdb":
        dicts: dict[str, Any] = {name: {"PATH": str(tmp_path / "dicts")} for name in NAMES}
        return {"RESTY_DJANGO": {"SHARED_DICTS": dicts, "EVENTS": events}}
    request.getfixturevalue("valkey")
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": request.getfixturevalue("valkey_url")}
    dicts = {name: {"ENGINE": "redis"} for name in NAMES}
    return {"CACHES": {"default": cache}, "RESTY_DJANGO": {"SHARED_DICTS": dicts, "EVENTS": events}}


@pytest.fixture
def start(wide_site: dict[str, Any]) -> Iterator[Start]:
    """Start a `Worker`; all are ended after the test."""
    with workers_of(WORKER, wide_site) as start:
        yield start


@pytest.fixture
def joined(wide_site: dict[str, Any], settings: Any) -> None:
    """This process has the dictionaries of the workers."""
    for name, config in wide_site.items():
        setattr(settings, name, config)


def test_a_storm_on_a_cold_key_asks_the_source_once(start: Start, joined: None) -> None:
    """Eight processes, half of them with coroutines, which all ask for the same keys at the same time."""
    workers = [start("storm", twins=number % 2 == 1, keys=3) for number in range(8)]
    ready(workers)
    for number in range(3):
        for worker in workers:
            worker.say(f"round{number}")
        for worker in workers:
            worker.wait_for("through", f"round{number}", seconds=60)
    for name in (f"round{number} {key}" for number in range(3) for key in range(3)):
        assert shdicts["counts"].get(name) == 1, "the source was asked more than once"
        values = [line[1] for worker in workers for line in worker.lines if line[0] == "got"]
        assert len({value for value in values if value.startswith(name)}) == 1, "not everybody got the same value"


def test_a_storm_on_a_cold_page_runs_the_view_once(start: Start, joined: None) -> None:
    """Eight processes, half of them with a coroutine as view, which all ask for the same page at the same time."""
    workers = [start("page", twins=number % 2 == 1) for number in range(8)]
    ready(workers)
    for path in ("/one/", "/two/", "/three/"):
        for worker in workers:
            worker.say(path)
        for worker in workers:
            worker.wait_until(lambda at=path, of=worker: any(line[1:2] == [at] for line in of.lines), seconds=60)
        assert shdicts["counts"].get(path) == 1, "the view ran more than once"
        answers = [tuple(line[2:]) for worker in workers for line in worker.lines if line[1:2] == [path]]
        assert len(answers) == 8
        assert len(set(answers)) == 1, "not everybody got the same page"
        assert answers[0][0] == 200


@pytest.mark.parametrize("twins", [False, True])
def test_ten_callers_in_two_processes_of_a_failing_source(start: Start, joined: None, twins: bool) -> None:
    """With `error_ttl`, one call of the source fails for all of them; the other process gets its text."""
    workers = [start("fail", twins=twins) for _ in range(2)]
    ready(workers)
    for worker in workers:
        worker.say("k")
    for worker in workers:
        worker.wait_until(lambda of=worker: len(of.lines) == 6)
    assert shdicts["counts"].get("k") == 1, "the source was asked more than once"
    errors = sorted({line[2] for worker in workers for line in worker.lines if line[0] == "error"})
    failed = "CallbackFailed: callback threw an error: "
    assert errors == [f"{failed}ConnectionError: refused", f"{failed}refused"]


def test_a_holder_of_the_lock_that_is_killed(start: Start) -> None:
    """The lock frees itself after its `exptime`, and another process asks the source."""
    holder = start("hang", lock_options={"exptime": 2})
    holder.wait_for("inside")
    second = start("ask", lock_options={"timeout": 30})
    second.wait_for("ready")
    holder.end(signal.SIGKILL)
    second.say("k value")
    second.wait_for("hit", "value", 3)


def test_a_callback_that_hangs(start: Start) -> None:
    holder = start("hang")
    holder.wait_for("inside")
    second = start("ask", lock_options={"timeout": 0.3})
    second.wait_for("ready")
    second.say("k value")
    second.wait_until(lambda: any(line[0] == "error" for line in second.lines))
    (line,) = (line for line in second.lines if line[0] == "error")
    assert line[1] == "LockTimeout"
    assert line[2] >= 0.3
    second.say("l value")
    second.wait_for("hit", "value", 3)


def test_a_callback_that_hangs_while_there_is_a_stale_value(start: Start) -> None:
    options = {"ttl": 0.2, "resurrect_ttl": 10, "lock_options": {"timeout": 0.3}}
    second = start("ask", **options)
    second.wait_for("ready")
    second.say("k old")
    second.wait_for("hit", "old", 3)
    time.sleep(0.25)
    start("hang", **options).wait_for("inside")
    second.say("k new")
    second.wait_for("hit", "old", 4)


def test_an_invalidation_reaches_other_processes(start: Start, joined: None) -> None:
    listeners = [start(what, ttl=1000) for what in ("listen", "listen", "alisten")]
    ready(listeners)
    cache = MLCache("c", lru=LRU(9))
    for number in range(5):
        cache.set("k", number)
        for worker in listeners:
            worker.wait_for("now", number)
    cache.delete("k")
    for worker in listeners:
        worker.wait_until(lambda of=worker: of.lines[-1] == ["now", None])


@pytest.mark.soak
def test_a_killed_writer_leaves_no_old_value_in_l1(start: Start, joined: None) -> None:
    """The value and its invalidation are one step: what L2 has after the kill, all processes have."""
    listeners = [start("listen", ttl=1000) for _ in range(2)]
    ready(listeners)
    cache, chance = MLCache("c", lru=LRU(9)), random.Random(7)
    for _ in range(60):
        writer = start("write")
        writer.wait_until(lambda of=writer: len(of.lines) > 0)
        time.sleep(chance.random() * 0.05)
        writer.end(signal.SIGKILL)
        stored = cache.peek("k")
        assert stored is not None
        for worker in listeners:
            worker.wait_for("now", stored.value)


def test_parent_and_child_of_a_fork_hear_each_other(start: Start) -> None:
    parent = start("fork")
    parent.wait_for("forked")
    parent.wait_for("child", "old", 1)
    parent.say("")
    parent.wait_for("child", "new", 0)
    parent.wait_for("parent", "newest")
    parent.wait_until(lambda: any(line[0] == "parent has" for line in parent.lines))
    (line,) = (line for line in parent.lines if line[0] == "parent has")
    assert line[1] == 2, "one callback of the parent, one of the child, and none counted twice"
    assert parent.end(None) == ""


@pytest.mark.redis
async def test_redis_stops_and_returns(settings: Any) -> None:
    """L1 goes on answering, the rest is a clear error at once, and all is well again when the server is."""
    with servers.one() as server:
        servers.forget_pools()
        settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}}
        cache = MLCache("c", RedisDict("values"), ttl=1000, lru=LRU(9), on_error="raise")
        cache.get("k", value("v"))
        await cache.aget("a", value("w"))
        server.kill()
        for _ in range(2):
            assert (cache.get("k"), await cache.aget("a")) == ("v", "w")
            with pytest.raises(Unavailable):
                cache.get("new", value("n"))
            with pytest.raises(Unavailable):
                await cache.aget("new", value("n"))
            with pytest.raises((Unavailable, CacheError)):
                cache.set("k", 1)
        server.start()
        await settle(lambda: not current_outages())
        assert cache.lookup("new", value("n")) == ("n", Level.L3)
        assert (await cache.alookup("anew", value("n"))) == ("n", Level.L3)
        assert cache.stats().errors == 4
        assert cache.lookup("k") == ("v", Level.L1)
    servers.forget_pools()


@pytest.mark.redis
def test_redis_goes_while_the_callback_runs(settings: Any) -> None:
    with servers.one() as server:
        servers.forget_pools()
        settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}}
        cache = MLCache("c", RedisDict("values"), lru=LRU(9))

        def source() -> str:
            server.kill()
            return "v"

        with pytest.raises(Unavailable):
            cache.get("k", source, on_error="raise")
        server.start()
        until(lambda: not current_outages())
        assert cache.get("k", source) == "v"
        assert cache.lookup("k") == ("v", Level.L1)
        assert cache.peek("k") is None
        server.start()
        until(lambda: not current_outages())
        assert cache.peek("k") is None
        cache.lru.flush_all()
        assert cache.get("k", value("w")) == "w"
    servers.forget_pools()


def test_an_invalidated_tag_reaches_other_processes(start: Start, joined: None) -> None:
    listeners = [start("listen", ttl=1000) for _ in range(2)]
    ready(listeners)
    cache = MLCache("c", ttl=1000)
    for round_number in range(3):
        cache.set("k", f"value {round_number}", tags=("product:7", "shop:3"))
        for worker in listeners:
            worker.wait_for("now", f"value {round_number}")
        cache.invalidate_tags("shop:3")
        for worker in listeners:
            worker.wait_until(lambda of=worker: of.lines[-1] == ["now", None])
