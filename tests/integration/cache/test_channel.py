"""How processes hear from each other: the channel in a dictionary, channels of the site's own, and events."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.core.cache import caches as django_caches
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from resty_django import events
from resty_django.cache import (
    LRU,
    BadOption,
    ChannelFailed,
    EventChannel,
    Level,
    MLCache,
    NoChannel,
    ShmChannel,
    UnknownCache,
    mlcaches,
)
from resty_django.cache import channel as channels
from resty_django.cache.middleware import UpdateMiddleware
from resty_django.cache.store import Store
from resty_django.events.steps import run
from resty_django.shdict import shdicts
from tests.dictionaries import Clock
from tests.integration.cache.backends import OURS
from tests.integration.cache.cancelling import Slow, cancelled
from tests.integration.cache.conftest import Make, Shared, value
from tests.integration.locks.conftest import Pauses

# --- in a dictionary ---


class End:
    """One end of a channel; `heard` is what its listeners were given."""

    def __init__(self, shared: Shared, naps: Pauses, who: str) -> None:
        self.channel = ShmChannel(shared("ipc"), me=who, sleep=naps.sleep, asleep=naps.asleep)
        self.heard: list[tuple[str, str]] = []
        self.channel.register_listeners({"x": self.on("x"), "mlcache:purge:c": self.on("purge"), "bad": self.bad})

    def on(self, name: str) -> Callable[[str], None]:
        return lambda data: self.heard.append((name, data))

    def bad(self, data: str) -> None:
        raise ValueError("a listener that fails")


@pytest.fixture
def end(shared: Shared, naps: Pauses) -> Callable[[str], End]:
    return lambda who: End(shared, naps, who)


MakeEnd = Callable[[str], End]


def test_the_others_hear_it_in_order_and_oneself_does_not(end: MakeEnd) -> None:
    a, b = end("A"), end("B")
    for data in ("1", "2"):
        a.channel.broadcast("x", data)
    b.channel.broadcast("x", "3")
    a.channel.broadcast("nobody listens", "4")
    a.channel.poll()
    b.channel.poll()
    assert (a.heard, b.heard) == ([("x", "3")], [("x", "1"), ("x", "2")])
    a.channel.poll()
    b.channel.poll()
    assert len(a.heard) + len(b.heard) == 3


def test_one_that_comes_later_hears_what_is_kept(end: MakeEnd) -> None:
    a = end("A")
    for data in ("1", "2"):
        a.channel.broadcast("x", data)
    b = end("B")
    b.channel.poll()
    assert b.heard == [("x", "1"), ("x", "2")]


def test_once_events_were_thrown_out_a_new_one_begins_at_the_last_and_forgets(
    end: MakeEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "KEEP", 3)
    a = end("A")
    for data in "12345":
        a.channel.broadcast("x", data)
    assert a.channel.dictionary.get("mlcache:ipc:event:2") is None
    b = end("B")
    b.channel.poll()
    assert b.heard == [("purge", ""), ("x", "5")]


def test_a_listener_that_fails_is_logged_and_the_rest_goes_on(end: MakeEnd, caplog: pytest.LogCaptureFixture) -> None:
    a, b = end("A"), end("B")
    a.channel.broadcast("bad", "1")
    a.channel.broadcast("x", "2")
    b.channel.poll()
    assert b.heard == [("x", "2")]
    assert "the listener of 'bad' failed for '1'" in caplog.text


def test_an_event_that_comes_late_is_waited_for(end: MakeEnd, naps: Pauses) -> None:
    a, b = end("A"), end("B")
    a.channel.broadcast("x", "1")
    record = a.channel.dictionary.get("mlcache:ipc:event:1")
    a.channel.dictionary.delete("mlcache:ipc:event:1")
    naps.after(5, lambda: a.channel.dictionary.set("mlcache:ipc:event:1", record))
    b.channel.poll()
    assert b.heard == [("x", "1")]
    assert naps.slept == [1, 2, 4]


def test_an_event_that_never_comes_is_given_up_and_everything_forgotten(end: MakeEnd, naps: Pauses) -> None:
    a, b = end("A"), end("B")
    for data in "123":
        a.channel.broadcast("x", data)
    a.channel.dictionary.delete("mlcache:ipc:event:2")
    with pytest.raises(TimeoutError, match=r"^timeout$"):
        b.channel.poll(0.02)
    assert naps.slept == [1, 2, 4, 8, 5]
    assert b.heard == [("x", "1"), ("purge", "")]
    a.channel.broadcast("x", "4")
    b.channel.poll(0.02)
    assert b.heard[2:] == [("x", "4")]


def test_a_dictionary_that_was_emptied(end: MakeEnd) -> None:
    a, b = end("A"), end("B")
    for data in "123":
        a.channel.broadcast("x", data)
    b.channel.poll()
    a.channel.dictionary.flush_all()
    b.channel.poll()
    a.channel.broadcast("x", "4")
    b.channel.poll()
    assert b.heard[3:] == [("purge", ""), ("x", "4")]


def test_threads_that_poll_at_the_same_time_miss_nothing(shared: Shared) -> None:
    a, b = ShmChannel(shared("ipc"), me="A"), ShmChannel(shared("ipc"), me="B")
    heard: list[str] = []
    b.register_listeners({"x": heard.append})
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(0.001):
            b.poll(20)
        b.poll(20)

    threads = [threading.Thread(target=poll) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(100):
            a.broadcast("x", str(number))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(heard) == {str(number) for number in range(100)}


async def test_the_twins_do_the_same(end: MakeEnd) -> None:
    a, b = end("A"), end("B")
    await a.channel.abroadcast("x", "1")
    await b.channel.apoll()
    assert b.heard == [("x", "1")]


# --- of the site's own ---


class Hub:
    """Joins its channels in this process. It has no twins, and needs its time."""

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
    hub = Hub()
    a, b = make("A", ipc=hub.channel()), make("B", ipc=hub.channel())
    await b.lookup("k", value(1))
    await a.do("set", "k", 2)
    assert (await b.lookup("k"))[0] == 1
    assert await b.update() is None
    assert (await b.lookup("k"))[0] == 2
    assert [told[1:] for told in hub.told] == [("mlcache:invalidations:c", "k")]
    assert (hub.told[0][0] == threading.get_ident()) is not a.twins, "in a loop it is called in a thread"
    await a.do("purge")
    assert await b.update() is None
    assert b.cache.lru.count() == 0
    assert hub.told[1][1:] == ("mlcache:purge:c", "")
    assert await b.update(0.007) == "could not poll ipc events: the line is dead"


async def test_a_channel_without_poll(make: Make) -> None:
    a = make(ipc=Hub().channel(polls=False))
    await a.do("set", "k", 1)
    with pytest.raises(NoChannel, match=r"update\(\) of the cache 'c' needs a channel with poll"):
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
    with pytest.raises(ChannelFailed, match="could not broadcast the event 'mlcache:invalidations:c': no line"):
        await a.do("set", "k", 1)
    assert await a.lookup("k") == (1, None, 1)


def test_two_channels_are_one_too_many(shared: Shared) -> None:
    with pytest.raises(BadOption, match="ipc and ipc_shm cannot be given together"):
        MLCache("c", shared("values"), ipc=Hub().channel(), ipc_shm=shared("ipc"))


def test_a_dictionary_for_the_channel(shared: Shared, clock: Clock) -> None:
    a = MLCache("c", shared("values"), ipc_shm=shared("ipc"), lru=LRU(9, clock), clock=clock)
    assert isinstance(a.channel, ShmChannel)
    a.set("k", 1)
    assert shared("ipc").get("mlcache:ipc:last") == 1
    a.update()
    assert a.lookup("k").level == Level.L1, "one's own events are skipped"


# --- over events ---


@pytest.fixture
def two(site: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[MLCache, MLCache, Callable[[str], None]]:
    """Two caches of this process that hear each other over events, and a function to become another process."""
    monkeypatch.setattr(channels.sender, "token", "A")
    return (
        MLCache("c", lru=LRU(9)),
        MLCache("c", lru=LRU(9)),
        lambda who: monkeypatch.setattr(channels.sender, "token", who),
    )


Two = tuple[MLCache, MLCache, Callable[[str], None]]


def test_an_update_hears_in_a_process_that_does_not_listen(two: Two) -> None:
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


def test_what_l1_had_before_the_process_listened_is_forgotten(two: Two) -> None:
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
    begun, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        begun.set()
        go_on.wait(20)

    events.register(slow, "slow")
    events.post("slow", "e")
    a.set("k", 2)
    become("B")
    other = threading.Thread(target=events.poll)
    other.start()
    assert begun.wait(20)
    with pytest.raises(ChannelFailed, match="could not poll ipc events: timeout"):
        b.update(timeout=0.01)
    threading.Timer(0.05, go_on.set).start()
    b.update(timeout=20)
    assert b.get("k") == 2
    other.join()


def test_a_key_that_is_not_utf_8_travels(two: Two) -> None:
    a, b, become = two
    b.update()
    b.get(b"\xff", value(1))
    a.set(b"\xff", 2)
    become("B")
    b.update()
    assert b.get(b"\xff") == 2


def test_a_cache_that_is_gone_hears_nothing(two: Two) -> None:
    gone = MLCache("gone", lru=LRU(9))
    assert isinstance(gone.channel, EventChannel)
    del gone
    two[0].set("k", 1)
    two[0].update()


# --- the middleware, and caches by name ---


def test_the_middleware_hears_before_the_view(two: Two, site: Any) -> None:
    _, _, become = two
    cache = mlcaches["default"]
    writer = MLCache("default", lru=LRU(9))
    seen = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(cache.get("k"))
        return HttpResponse()

    middleware = UpdateMiddleware(view)
    request = RequestFactory().get("/")
    cache.get("k", value(1))
    middleware(request)
    become("B")
    writer.set("k", 2)
    become("A")
    middleware(request)
    assert seen == [1, 2]


async def test_the_middleware_for_asyncio(two: Two, site: Any) -> None:
    _, _, become = two
    cache = mlcaches["default"]
    writer = MLCache("default", lru=LRU(9))
    seen = []

    async def view(request: HttpRequest) -> HttpResponse:
        seen.append(await cache.aget("k"))
        return HttpResponse()

    middleware = UpdateMiddleware(view)
    request = AsyncRequestFactory().get("/")
    assert asyncio.iscoroutinefunction(middleware) or middleware._async
    await cache.aget("k", value(1))
    await middleware(request)  # type: ignore[misc]
    become("B")
    await writer.aset("k", 2)
    become("A")
    await middleware(request)  # type: ignore[misc]
    assert seen == [1, 2]


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
    assert caplog.text.count("requests may see old values") == 1


@pytest.mark.parametrize("twins", [False, True], ids=["call", "twin"])
async def test_a_channel_that_is_down_leaves_the_others_alone(
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

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    async def aview(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    lines = [Line(dead=True), Line(dead=False), Line(dead=True), Line(dead=False)]
    for number, line in enumerate(lines):
        mlcaches[f"line{number}"] = MLCache(f"line{number}", ipc=line, lru=LRU(9))
    middleware: Any = UpdateMiddleware(aview if twins else view)
    with caplog.at_level(logging.ERROR, "resty_django.cache"):
        for _ in range(3):
            reply = middleware(RequestFactory().get("/"))
            if twins:
                await reply
    assert [line.polls for line in lines] == [1, 3, 1, 3]
    assert caplog.text.count("requests may see old values") == 2, "once for each that is down"
    lines[0].dead = False
    for which in middleware._down:
        middleware._down[which] = 0.0  # the pause is over
    reply = middleware(RequestFactory().get("/"))
    if twins:
        await reply
    assert list(middleware._down) == [id(lines[2])]


async def test_the_middleware_hands_in_what_all_caches_have_counted(site: Any) -> None:
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"one": {}, "two": {}}}

    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    for name, middleware in (
        ("one", UpdateMiddleware(lambda request: HttpResponse())),
        ("two", UpdateMiddleware(view)),
    ):
        for cache in (mlcaches["one"], mlcaches["two"]):
            cache.get("k")
            cache.counter._due = 0
        reply = middleware(RequestFactory().get("/"))
        if name == "two":
            await reply  # type: ignore[misc]
    for name in ("one", "two"):
        assert shdicts["default"].get(f"mlcache:stats:{name}")["misses"] == 2


def of_django(site: Any, *locations: str, **options: Any) -> list[Any]:
    """Caches of Django on these dictionaries, whose L1 is kept as long as L2."""
    dicts = site.RESTY_DJANGO["SHARED_DICTS"]
    more = dict.fromkeys([*locations, *options.values()], dicts["default"])
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "SHARED_DICTS": {**dicts, **more}}
    made = {name: {"BACKEND": OURS, "LOCATION": name, "OPTIONS": {"LRU_TTL": 0, **options}} for name in locations}
    site.CACHES = {"default": made[locations[0]], **made}
    return [django_caches[name] for name in locations]


def elsewhere(cache: Any, value: Any) -> None:
    """Another process sets `k`: it has the dictionary and the channel of the cache in common, and no L1."""
    store = Store(cache.store.location, cache.store.options)
    run(store.set(cache.make_key("k"), value, 0))


@pytest.mark.parametrize("options", [{}, {"IPC_SHM": "ipc"}], ids=["events", "ipc_shm"])
@pytest.mark.parametrize("twins", [False, True], ids=["call", "twin"])
async def test_the_middleware_hears_for_the_caches_of_django(
    two: Two, site: Any, options: dict[str, str], twins: bool
) -> None:
    _, _, become = two
    pages, parts = of_django(site, "pages", "parts", **options)
    seen = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append((pages.get("k"), parts.get("k")))
        return HttpResponse()

    async def aview(request: HttpRequest) -> HttpResponse:
        return view(request)

    middleware: Any = UpdateMiddleware(aview if twins else view)
    for cache in (pages, parts):
        cache.set("k", "old")
    for wanted in ("old", "new"):
        reply = middleware(RequestFactory().get("/"))
        if twins:
            await reply
        assert seen[-1] == (wanted, wanted)
        become("B")
        for cache in (pages, parts):
            elsewhere(cache, "new")
        become("A")
        assert (pages.get("k"), parts.get("k")) == (wanted, wanted), "nobody has told yet"


def test_the_middleware_polls_each_channel_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    polled: list[object] = []
    for kind in (EventChannel, ShmChannel):
        monkeypatch.setattr(kind, "poll", lambda self, timeout: polled.append(self))
    for cache in of_django(site, "pages", "parts"):
        cache.get("k")
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"one": {"IPC_SHM": "default"}, "two": {"IPC_SHM": "default"}}}
    middleware = UpdateMiddleware(lambda request: HttpResponse())
    middleware(RequestFactory().get("/"))
    assert polled == []
    pages, parts = django_caches["pages"], django_caches["parts"]
    for used in (pages, parts, mlcaches["one"], mlcaches["two"], mlcaches["default"]):
        used.get("k")
    middleware(RequestFactory().get("/"))
    assert len(polled) == 3
    assert {mlcaches["one"].channel, mlcaches["two"].channel} < set(polled)


async def test_the_middleware_hands_in_what_caches_of_django_have_counted(site: Any) -> None:
    (pages,) = of_django(site, "pages")

    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    for number, given in ((1, lambda request: HttpResponse()), (2, view)):
        pages.get("k")
        pages.store.counter._due = 0
        reply: Any = UpdateMiddleware(given)(RequestFactory().get("/"))
        if number == 2:
            await reply
        assert shdicts["pages"].get("mlcache:stats:django-cache/pages")["misses"] == number


def upper(given: Any) -> Any:
    return given.upper()


class Reversed:
    @staticmethod
    def encode(given: str) -> str:
        return given[::-1]

    decode = encode


HERE = "tests.integration.cache.test_channel"


def test_caches_by_name(site: Any) -> None:
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
            "told": {"IPC_SHM": "events"},
        },
    }
    pages = mlcaches["pages"]
    assert mlcaches["pages"] is pages
    assert list(mlcaches.names()) == ["default", "pages", "told"]
    assert pages.channel is None
    assert pages.lru.capacity() == 7
    assert pages.get("k", value("abc")) == "ABC"
    assert MLCache("pages", "events", lru=LRU(9)).get("k") == "cba"
    options = pages.options
    assert (options.ttl, options.neg_ttl, options.resurrect_ttl, options.stale_while_revalidate) == (9, 2, 4, 3)
    assert (options.jitter, options.shm_set_tries, options.failures) == (0.1, 2, (NoChannel,))
    assert options.lock_options["timeout"] == 1
    told = mlcaches["told"].channel
    assert isinstance(told, ShmChannel)
    assert told.dictionary is shdicts["events"]
    assert mlcaches["default"].options.ttl == 30
    with pytest.raises(UnknownCache, match=r"There is no cache 'nowhere'.*which has default, pages, told"):
        mlcaches["nowhere"]
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"pages": {"TTL": 1}}}
    assert mlcaches["pages"] is not pages
    assert mlcaches["pages"].options.ttl == 1


@pytest.mark.parametrize("lets_go", [True, False])
@pytest.mark.parametrize(("call", "args", "now"), [("aset", ("new",), "new"), ("adelete", (), None)])
async def test_a_writer_of_django_that_is_cancelled_leaves_no_old_value_in_l1(
    site: Any, monkeypatch: pytest.MonkeyPatch, call: str, args: Any, now: Any, lets_go: bool
) -> None:
    (pages,) = of_django(site, "pages")
    told: list[str] = []

    async def tell(self: object, channel: str, data: str) -> None:
        told.append(data)

    pages.set("k", "old")
    assert [pages.get("k") for _ in range(2)] == ["old", "old"]
    monkeypatch.setattr(EventChannel, "abroadcast", tell)
    with monkeypatch.context() as patch:
        await cancelled(getattr(pages, call)("k", *args), Slow(patch, shdicts["pages"], call), lets_go)
    assert pages.get("k") == now
    assert told == ([":1:k"] if lets_go else [])
