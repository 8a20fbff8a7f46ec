"""How processes hear from each other: over events, over channels of the site, and with the middleware."""

from __future__ import annotations

import gc
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch
from weakref import WeakValueDictionary

import pytest
from asgiref.sync import iscoroutinefunction
from django.core.cache import caches as django_caches
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django import events
from resty_django.cache import (
    LRU,
    ChannelFailed,
    EventChannel,
    MLCache,
    NoChannel,
    UnknownCache,
    mlcaches,
)
from resty_django.cache.backend.store import BackendStore
from resty_django.cache.broadcasts import events as channel_events
from resty_django.cache.middleware import UpdateMiddleware
from resty_django.cache.mlcache import cache as cache_module
from resty_django.sansio import run
from resty_django.shdict import shdicts
from tests.integration.cache.backends import OURS
from tests.integration.cache.cancelling import Slow, cancelled
from tests.integration.cache.conftest import Make, value
from tests.integration.cache.tools import Hub, HubChannel, flushed, in_journal

# --- of the site's own ---


class SyncHub:
    """Joins its channels in this process. These have no calls for asyncio."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, str, str]] = []

    def channel(self, polls: bool = True) -> Any:
        hub = self

        class Mine:
            def __init__(self) -> None:
                self.seen = 0
                self.listeners: Mapping[str, Callable[[str], object]] = {}

            def register_listeners(self, listeners: Mapping[str, Callable[[str], object]]) -> None:
                self.listeners = listeners

            def broadcast(self, channel: str, data: str) -> None:
                hub.told.append((threading.get_ident(), channel, data))

        class Polls(Mine):
            def poll(self, timeout: float) -> None:
                if timeout == 0.007:
                    raise OSError("the line is dead")
                for _, channel, data in hub.told[self.seen :]:
                    self.listeners[channel](data)
                self.seen = len(hub.told)

        return Polls() if polls else Mine()


async def test_a_channel_of_the_sites_own(make: Make) -> None:
    hub = SyncHub()
    a, b = make("A", ipc=hub.channel()), make("B", ipc=hub.channel())
    await b.lookup("k", value(1))
    await a.do("set", "k", 2)
    assert (await b.lookup("k"))[0] == 1
    assert await b.update() is None
    assert (await b.lookup("k"))[0] == 2
    assert [broadcast[1:] for broadcast in hub.told] == [("mlcache:invalidations:c", "k")]
    assert (hub.told[0][0] == threading.get_ident()) is not a.twins, "in a loop it is called in a thread"
    await a.do("purge")
    assert await b.update() is None
    assert b.cache.lru.count() == 0
    assert hub.told[1][1:] == ("mlcache:purge:c", "")
    assert await b.update(0.007) == "could not poll ipc events: the line is dead"


async def test_a_failed_update_leaves_l1_until_the_next_update(make: Make, hub: Hub) -> None:
    a, b = make("A"), make("B")
    await a.lookup("k", value(1))
    await b.do("set", "k", 2)
    hub.fault = TimeoutError("timeout")
    assert await a.update() == "could not poll ipc events: timeout"
    assert await a.lookup("k") == (1, None, 1)
    hub.fault = None
    assert await a.update() is None
    assert await a.lookup("k") == (2, None, 2)


async def test_a_channel_without_poll(make: Make) -> None:
    a = make(ipc=SyncHub().channel(polls=False))
    await a.do("set", "k", 1)
    with pytest.raises(NoChannel, match="poll"):
        await a.do("update")


async def test_a_channel_that_fails(make: Make) -> None:
    class Broken:
        def register_listeners(self, listeners: Any) -> None:
            raise OSError("no line")

        def broadcast(self, channel: str, data: str) -> None:
            raise OSError("no line")

    with pytest.raises(ChannelFailed, match=r"^could not initialize ipc: no line"):
        make(ipc=Broken())

    class Silent(Broken):
        def register_listeners(self, listeners: Any) -> None:
            pass

    a = make(ipc=Silent())
    with pytest.raises(ChannelFailed, match="mlcache:invalidations:c"):
        await a.do("set", "k", 1)
    assert await a.lookup("k") == (1, None, 1)


# --- over events ---


@pytest.fixture
def two(site: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[MLCache, MLCache, Callable[[str], None]]:
    """Two caches of this process that hear each other over events, and a function to become another process."""
    monkeypatch.setattr(channel_events.sender, "token", "A")
    return (
        MLCache("c", lru=LRU(9)),
        MLCache("c", lru=LRU(9)),
        lambda who: monkeypatch.setattr(channel_events.sender, "token", who),
    )


Two = tuple[MLCache, MLCache, Callable[[str], None]]


def test_an_update_receives_events_in_a_process_without_a_listener(two: Two) -> None:
    a, b, become = two
    b.update()
    b.get("k", value(1))
    a.set("k", 2)
    become("B")
    assert b.get("k") == 1
    b.update()
    assert b.get("k") == 2
    a.delete("k")
    b.update()
    assert b.get("k") == 2, "one's own events are skipped"
    assert not events.running()


async def test_the_twins_over_events(two: Two) -> None:
    a, b, become = two
    await b.aupdate()
    await b.aget("k", value(1))
    await a.aset("k", 2)
    become("B")
    await b.aupdate()
    assert await b.aget("k") == 2
    await a.apurge()
    become("C")
    await b.aupdate()
    assert b.lru.count() == 0


def test_l1_is_emptied_when_the_process_starts_to_listen(two: Two) -> None:
    _, b, _ = two
    b.get("k", value(1))
    b.update()
    assert b.lru.count() == 0
    b.get("k")
    b.update()
    assert b.lru.count() == 1


def test_an_update_waits_for_another_thread_that_polls(two: Two) -> None:
    a, b, become = two
    b.update()
    b.get("k", value(1))
    started, go_on = threading.Event(), threading.Event()

    def slow(*event: Any) -> None:
        started.set()
        go_on.wait(20)

    events.register(slow, "slow")
    events.post("slow", "e")
    a.set("k", 2)
    become("B")
    thread = threading.Thread(target=events.poll)
    thread.start()
    assert started.wait(20)
    with pytest.raises(ChannelFailed, match="could not poll ipc events: timeout"):
        b.update(timeout=0.01)
    threading.Timer(0.05, go_on.set).start()
    b.update(timeout=20)
    assert b.get("k") == 2
    thread.join()


def test_a_key_that_is_not_utf_8_travels(two: Two) -> None:
    a, b, become = two
    b.update()
    b.get(b"\xff", value(1))
    a.set(b"\xff", 2)
    become("B")
    b.update()
    assert b.get(b"\xff") == 2


def test_a_listener_that_fails_is_logged_and_the_rest_goes_on(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    _, _, become = two
    channel, heard = EventChannel(), []

    def fails(data: str) -> None:
        raise ValueError("a listener that fails")

    channel.register_listeners({"bad": fails, "x": heard.append})
    channel.poll()
    channel.broadcast("bad", "1")
    channel.broadcast("x", "2")
    become("B")
    channel.poll()
    assert heard == ["2"]
    assert "The listener of 'bad' failed for '1'" in caplog.text


def test_a_deleted_cache_receives_no_events(two: Two) -> None:
    gone = MLCache("gone", lru=LRU(9))
    assert isinstance(gone.channel, EventChannel)
    reference = weakref.ref(gone)
    del gone
    gc.collect()
    assert reference() is None, "the channel does not keep it"
    two[0].set("k", 1)
    two[0].update()
    assert two[0].get("k") == 1


# --- the middleware, and caches by name ---


def updating(twins: bool, view: Callable[[], object] = lambda: None) -> Any:
    """The middleware before a view that calls this; requests to it are to be awaited."""

    def called(request: HttpRequest) -> HttpResponse:
        view()
        return HttpResponse()

    async def awaited(request: HttpRequest) -> HttpResponse:
        return called(request)

    middleware: Any = UpdateMiddleware(awaited if twins else called)
    assert iscoroutinefunction(middleware) == twins
    return middleware


async def request(middleware: Any) -> None:
    reply = middleware(RequestFactory().get("/"))
    if inspect.isawaitable(reply):
        await reply


@pytest.mark.parametrize("twins", [False, True], ids=["call", "twin"])
async def test_the_middleware_receives_events_before_the_view(two: Two, site: Any, twins: bool) -> None:
    _, _, become = two
    cache = mlcaches["default"]
    writer = MLCache("default", lru=LRU(9))
    values: list[Any] = []
    middleware = updating(twins, lambda: values.append(cache.get("k")))
    cache.get("k", value(1))
    for _ in range(2):
        await request(middleware)
        become("B")
        writer.set("k", 2)
        become("A")
    assert values == [1, 2]


def test_a_channel_that_is_down_fails_no_request(
    site: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlcaches["default"].get("k", value(1))
    calls = []

    def dead(timeout: float) -> None:
        calls.append(1)
        raise OSError("the line is dead")

    monkeypatch.setattr(mlcaches["default"].channel, "poll", dead, raising=False)
    middleware = UpdateMiddleware(lambda request: HttpResponse(mlcaches["default"].get("k")))
    with caplog.at_level(logging.ERROR, "resty_django.cache"):
        for _ in range(3):
            assert middleware(RequestFactory().get("/")).content == b"1"  # type: ignore[union-attr]
    assert len(calls) == 1, "it is left alone for a while"
    assert caplog.text.count("Requests may see old values") == 1


@pytest.mark.parametrize("twins", [False, True], ids=["call", "twin"])
async def test_a_channel_that_is_down_does_not_affect_others(
    site: Any, caplog: pytest.LogCaptureFixture, twins: bool
) -> None:
    class Line:
        """A channel of a site, which may be dead."""

        def __init__(self, dead: bool) -> None:
            self.dead = dead
            self.polls = 0

        def register_listeners(self, listeners: Mapping[str, Any]) -> None: ...

        def broadcast(self, channel: str, data: str) -> None: ...

        def poll(self, timeout: float) -> None:
            self.polls += 1
            if self.dead:
                raise OSError("the line is dead")

    lines = [Line(dead=True), Line(dead=False), Line(dead=True), Line(dead=False)]
    for number, line in enumerate(lines):
        mlcaches[f"line{number}"] = MLCache(f"line{number}", ipc=line, lru=LRU(9))
    middleware = updating(twins)
    with caplog.at_level(logging.ERROR, "resty_django.cache"):
        for _ in range(3):
            await request(middleware)
    assert [line.polls for line in lines] == [1, 3, 1, 3]
    assert caplog.text.count("Requests may see old values") == 2, "once for each that is down"
    lines[0].dead = False
    for which in middleware.down:
        middleware.down[which] = 0.0  # the pause is over
    await request(middleware)
    assert list(middleware.down) == [id(lines[2])]


async def test_the_middleware_flushes_the_counts_of_all_caches(site: Any) -> None:
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"one": {}, "two": {}}}
    for twins in (False, True):
        for cache in (mlcaches["one"], mlcaches["two"]):
            cache.get("k")
            cache.counter.due_at = 0
        await request(updating(twins))
    for name in ("one", "two"):
        assert flushed(name, shdicts["default"]).misses == 2


def of_django(site: Any, *locations: str) -> list[Any]:
    """Caches of Django on these dictionaries, whose L1 is kept as long as L2."""
    dicts = site.RESTY_DJANGO["SHARED_DICTS"]
    dictionaries = dict.fromkeys(locations, dicts["default"])
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "SHARED_DICTS": {**dicts, **dictionaries}}
    configs = {name: {"BACKEND": OURS, "LOCATION": name, "OPTIONS": {"LRU_TTL": 0}} for name in locations}
    site.CACHES = {"default": configs[locations[0]], **configs}
    return [django_caches[name] for name in locations]


def elsewhere(cache: Any, value: Any) -> None:
    """Another process sets `k`: it has the dictionary and the channel of the cache in common, and no L1."""
    store = BackendStore(cache.store.location, cache.store.options)
    run(store.set(cache.make_key("k"), value, 0))


@pytest.mark.parametrize("twins", [False, True], ids=["call", "twin"])
async def test_the_middleware_receives_events_for_the_caches_of_django(two: Two, site: Any, twins: bool) -> None:
    _, _, become = two
    pages, parts = of_django(site, "pages", "parts")
    values: list[Any] = []
    middleware = updating(twins, lambda: values.append((pages.get("k"), parts.get("k"))))
    for cache in (pages, parts):
        cache.set("k", "old")
    for expected in ("old", "new"):
        await request(middleware)
        assert values[-1] == (expected, expected)
        become("B")
        for cache in (pages, parts):
            elsewhere(cache, "new")
        become("A")
        assert (pages.get("k"), parts.get("k")) == (expected, expected), "the event has not arrived yet"


def test_the_middleware_polls_each_channel_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    polled: list[object] = []
    for kind in (EventChannel, HubChannel):
        monkeypatch.setattr(kind, "poll", lambda self, timeout: polled.append(self))
    for cache in of_django(site, "pages", "parts"):
        cache.get("k")
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"default": {"TTL": 5}}}  # no cache is in use after this
    middleware = UpdateMiddleware(lambda request: HttpResponse())
    middleware(RequestFactory().get("/"))
    assert polled == []
    hub = Hub()
    for name in ("one", "two"):
        mlcaches[name] = MLCache(name, ipc=hub.channel("A"), lru=LRU(9))
    pages, parts = django_caches["pages"], django_caches["parts"]
    for used in (pages, parts, mlcaches["one"], mlcaches["two"], mlcaches["default"]):
        used.get("k")
    middleware(RequestFactory().get("/"))
    assert len(polled) == 3
    assert {mlcaches["one"].channel, mlcaches["two"].channel} < set(polled)


async def test_the_middleware_flushes_the_counts_of_django_caches(site: Any) -> None:
    (pages,) = of_django(site, "pages")
    for number, twins in ((1, False), (2, True)):
        pages.get("k")
        pages.store.counter.due_at = 0
        await request(updating(twins))
        assert flushed("django-cache/pages", shdicts["pages"]).misses == number


def upper(text: Any) -> Any:
    return text.upper()


class Reversed:
    @staticmethod
    def encode(text: str) -> str:
        return text[::-1]

    decode = encode


HERE = "tests.integration.cache.test_invalidation"


def test_caches_by_name(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_lrus", WeakValueDictionary())  # an earlier test's "pages" may still live
    site.RESTY_DJANGO = {
        **site.RESTY_DJANGO,
        "CACHES": {
            "pages": {
                "SHM": "events",
                "SHM_LOCKS": "default",
                "LRU_SIZE": 7,
                "TTL": 9,
                "NEG_TTL": 2,
                "RESURRECT_TTL": 4,
                "STALE_WHILE_REVALIDATE": 3,
                "JITTER": 0.1,
                "SHM_SET_TRIES": 2,
                "IPC": False,
                "SERIALIZER": f"{HERE}.Reversed",
                "L1_SERIALIZER": f"{HERE}.upper",
                "FAILURES": [f"{HERE}.NoChannel"],
                "LOCK": {"TIMEOUT": 1},
            },
            "parts": {"SHM": "events"},
        },
    }
    pages = mlcaches["pages"]
    assert mlcaches["pages"] is pages
    assert list(mlcaches) == ["default", "pages", "parts"]
    assert mlcaches.all(initialized_only=True) == [pages]
    assert pages.channel is None
    assert pages.lru.capacity() == 7
    assert pages.get("k", value("abc")) == "ABC"
    assert MLCache("pages", "events", lru=LRU(9)).get("k") == "cba"
    options = pages.options
    assert (options.ttl, options.neg_ttl, options.resurrect_ttl, options.stale_while_revalidate) == (9, 2, 4, 3)
    assert (options.jitter, options.shm_set_tries, options.failures) == (0.1, 2, (NoChannel,))
    assert options.lock_options["timeout"] == 1
    assert isinstance(mlcaches["parts"].channel, EventChannel)
    assert mlcaches["default"].options.ttl == 30
    with pytest.raises(UnknownCache, match=r"'nowhere'.*default, pages, parts"):
        mlcaches["nowhere"]
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"pages": {"TTL": 1}}}
    assert mlcaches["pages"] is not pages
    assert mlcaches["pages"].options.ttl == 1


def test_a_site_replaces_caches_as_in_a_dict(site: Any) -> None:
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"pages": {}}}
    added = MLCache("own", lru=LRU(9))
    assert mlcaches.setdefault("default", added) is mlcaches["default"] is mlcaches.pop("default") is added
    assert mlcaches.pop("pages", None) is None  # it is not created just to be removed
    with patch.dict(mlcaches, {"default": added}):
        assert mlcaches["default"] is added
    assert mlcaches["default"] is not added


def test_all_caches_are_listed_whether_used_or_not(site: Any) -> None:
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"pages": {}}}
    assert list(mlcaches) == list(mlcaches.keys()) == ["default", "pages"]
    assert len(mlcaches) == 2
    assert "pages" in mlcaches
    assert "nowhere" not in mlcaches
    assert mlcaches.all(initialized_only=True) == []
    mlcaches["own"] = added = MLCache("own", lru=LRU(9))
    assert list(mlcaches) == ["default", "pages", "own"]
    assert "own" in mlcaches
    assert mlcaches.get("own") is mlcaches["own"] is added
    assert mlcaches.get("nowhere") is None
    assert mlcaches.get("nowhere", added) is added
    assert mlcaches.all(initialized_only=True) == [added]
    assert [cache.name for cache in mlcaches.all()] == [cache.name for cache in mlcaches.values()]
    assert dict(mlcaches.items()) == dict(mlcaches) == {name: mlcaches[name] for name in ("default", "pages", "own")}
    mlcaches.clear()
    assert list(mlcaches) == ["default", "pages"]


@pytest.mark.parametrize("lets_go", [True, False])
@pytest.mark.parametrize(("call", "args", "now"), [("aset", ("new",), "new"), ("adelete", (), None)])
async def test_a_writer_of_django_that_is_cancelled_leaves_no_old_value_in_l1(
    site: Any, monkeypatch: pytest.MonkeyPatch, call: str, args: Any, now: Any, lets_go: bool
) -> None:
    (pages,) = of_django(site, "pages")
    pages.set("k", "old")
    assert [pages.get("k") for _ in range(2)] == ["old", "old"]
    with monkeypatch.context() as patch:
        patch.setattr(EventChannel, "is_local", False)  # writes to memory alone do not wait
        await cancelled(getattr(pages, call)("k", *args), Slow(patch, shdicts["pages"], call), lets_go)
    assert pages.get("k") == now
    told = ("mlcache:invalidations:django-cache/pages", ":1:k")
    assert in_journal(shdicts["pages"]) == [told, told], "the other processes know, even if the loop has ended"


def test_l1_is_emptied_when_events_may_have_been_missed(site: Any) -> None:
    cache = mlcaches["default"]
    cache.get("k", value("v"), ttl=1000)
    events.post_local(events.events.source, events.events.missed)
    cache.update()
    assert cache.lookup("k").level == 2
