"""Events in a stream of Redis: what the server may do to it, its set-ups, and how soon events are heard."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django import events
from resty_django.conf.sections.core import EventsSettings
from resty_django.events import runtime
from resty_django.events.channels.stream import StreamChannel
from resty_django.events.options import EventOptions
from resty_django.events.service import EventService
from resty_django.redis import connection
from resty_django.shdict import NoMemory, SharedDictError, Unavailable
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.servers import eventually

pytestmark = pytest.mark.redis


@pytest.fixture
def channel(redis_cache: str) -> StreamChannel:
    return StreamChannel(RedisDict("events", alias=redis_cache), 5000)


def listening(channel: StreamChannel) -> tuple[EventService, list[Any]]:
    """A service that has begun, and the data that it hears."""
    heard: list[Any] = []
    service = EventService(lambda: (channel, EventOptions.of(EventsSettings())))
    service.registry.add(lambda data, *event_args: heard.append(data), "s")
    service.begin(channel, EventOptions.of(EventsSettings()))
    return service, heard


def test_the_stream_keeps_about_as_many_events_as_configured(redis_cache: str) -> None:
    channel = StreamChannel(RedisDict("events", alias=redis_cache), 200)
    for number in range(1000):
        channel.append(b"%d" % number, 0)
    assert 200 <= connection(redis_cache).xlen(b"resty:dict:events:") <= 400


def test_no_item_has_the_key_of_the_stream(redis_cache: str) -> None:
    dictionary = RedisDict("other", alias=redis_cache, prefix="mine:")
    StreamChannel(dictionary, 1000).append(b"x", 0)
    dictionary.set("events", 1)
    assert connection(redis_cache).type("mine:") == b"stream"
    assert dictionary.get_keys() == ["events"]


def test_many_events_are_read_in_parts(channel: StreamChannel) -> None:
    service, heard = listening(channel)
    for number in range(1700):
        service.post("s", "e", number)
    assert service.poll() == "done"
    assert heard == list(range(1700))


def test_reading_continues_in_a_stream_that_lost_its_end(
    channel: StreamChannel, redis_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover to a server that is behind and whose clock is, too."""
    service, heard = listening(channel)
    missed: list[bool] = []
    service.registry.add(lambda *event_args: missed.append(True), events.events.source, events.events.missed)
    service.post("s", "e", 1)
    service.poll()
    client = connection(redis_cache)
    key = channel.key
    record = client.xrange(key)[-1][1][b"e"]
    client.delete(key)
    client.xadd(key, {b"e": record.replace(b'"data":1', b'"data":2')}, id="5-0")
    service.poll()
    assert heard == [1]
    channel.check_at = 0
    assert missed == []
    service.poll()
    assert missed == [True]
    assert service.position == b"5-0"
    client.xadd(key, {b"e": record.replace(b'"data":1', b'"data":3')}, id="5-1")
    service.poll()
    assert heard == [1, 3]


async def test_reading_continues_in_asyncio_in_a_stream_that_lost_its_end(
    channel: StreamChannel, redis_cache: str
) -> None:
    service, _ = listening(channel)
    connection(redis_cache).delete(channel.key)
    connection(redis_cache).xadd(channel.key, {b"e": b"rubbish"}, id="5-0")
    await service.apoll()
    assert service.position == b"5-0"
    assert await channel.alast() == b"5-0"


def test_waiting_ends_with_news_and_with_the_time(channel: StreamChannel) -> None:
    position = channel.last()
    began = time.monotonic()
    channel.wait(position, 0.2)
    assert time.monotonic() - began > 0.19
    threading.Timer(0.1, channel.append, (b"x", 0)).start()
    began = time.monotonic()
    channel.wait(position, 30)
    assert time.monotonic() - began > 0.05
    channel.wait(position, 30)
    assert time.monotonic() - began < 10


async def test_waiting_in_a_loop_leaves_the_loop_free(channel: StreamChannel) -> None:
    position = await channel.alast()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    await channel.await_news(position, 0.3)
    ticking.cancel()
    assert ticks > 10


# --- a site whose events travel by Redis ---


@pytest.fixture
def use(settings: Any, redis_cache: str) -> Iterator[Callable[..., None]]:
    """Let the events of this process travel by the cache `default` at a LOCATION."""

    def use(location: str | list[str], **options: Any) -> None:
        servers.forget_pools()
        settings.CACHES = {
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options}
        }
        settings.RESTY_DJANGO = {"SHARED_DICTS": {"events": {"ENGINE": "redis"}}, "EVENTS": {"INTERVAL": 5}}
        runtime.reset()

    yield use
    runtime.reset()
    servers.forget_pools()


def test_errors_of_the_server_become_errors_of_the_dictionary(use: Callable[..., None]) -> None:
    with servers.one() as server:
        use(server.url)
        channel = StreamChannel(RedisDict("events"), 1000)
        client = connection("default")
        client.set(channel.key, b"no stream")
        with pytest.raises(SharedDictError, match=r"^Redis: .*WRONGTYPE"):
            channel.last()
        client.delete(channel.key)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        with pytest.raises(NoMemory):
            channel.append(b"x", 999)


def latencies(count: int) -> list[float]:
    """Seconds from posting to the handler, the listener being a thread of this process."""
    took: list[float] = []
    came = threading.Event()

    def handler(data: float, *event_args: Any) -> None:
        took.append(time.perf_counter() - data)
        came.set()

    events.register(handler, "s")
    events.start()
    for _ in range(count):
        came.clear()
        events.post("s", "e", time.perf_counter())
        assert came.wait(5)
    return took


def test_events_are_heard_at_once(use: Callable[..., None], valkey_url: str) -> None:
    use(valkey_url)
    assert min(latencies(50)) < 0.02


@pytest.mark.parametrize("patience", [0.1, 0.3])
def test_a_short_timeout_of_the_client_does_not_count_as_an_outage(
    use: Callable[..., None], valkey_url: str, caplog: pytest.LogCaptureFixture, patience: float
) -> None:
    use(valkey_url, SOCKET_TIMEOUT=patience)
    latencies(1)
    time.sleep(0.4)
    assert caplog.records == []


def test_local_events_do_not_wait_for_the_server(use: Callable[..., None], valkey_url: str, settings: Any) -> None:
    use(valkey_url)
    heard: list[float] = []
    events.register(lambda *event_args: heard.append(time.monotonic()), "s")
    events.configure(interval=0.02)
    events.post_local("s", "first")
    assert eventually(lambda: len(heard) == 1)
    posted = time.monotonic()
    events.post_local("s", "e")
    assert eventually(lambda: len(heard) == 2)
    assert heard[1] - posted < 0.3


def test_a_thread_listens_again_after_the_server_died(
    use: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with servers.one() as server:
        use(server.url)
        heard: list[Any] = []
        events.register(lambda data, *event_args: heard.append(data), "s")
        events.start()
        events.post("s", "e", 1)
        assert eventually(lambda: heard == [1])
        server.kill()
        with pytest.raises(events.Unavailable, match=r'^failed posting event "e" by "s"; Redis: '):
            events.post("s", "e", 2)
        assert eventually(lambda: "Events are not received until the store is back" in caplog.text)
        time.sleep(0.5)
        server.start()
        assert eventually(lambda: "Events are received again" in caplog.text, 10)
        events.post("s", "e", 3)
        assert eventually(lambda: heard == [1, 3])
        assert len(caplog.records) == 2
        events.stop()


async def test_a_task_listens_again_after_the_server_died(
    use: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def comes(check: Callable[[], bool]) -> bool:
        return await asyncio.to_thread(eventually, check, 10)

    with servers.one() as server:
        use(server.url)
        heard: list[Any] = []

        async def handler(data: Any, *event_args: Any) -> None:
            heard.append(data)

        events.register(handler, "s")
        await events.astart()
        assert await comes(events.configured)
        await events.apost("s", "e", 1)
        assert await comes(lambda: heard == [1])
        server.kill()
        with pytest.raises(events.Unavailable):
            await events.apost("s", "e", 2)
        assert await comes(lambda: "Events are not received until the store is back" in caplog.text)
        server.start()
        assert await comes(lambda: "Events are received again" in caplog.text)
        await events.apost("s", "e", 3)
        assert await comes(lambda: heard == [1, 3])
        assert len([record for record in caplog.records if record.name == "resty_django.events"]) == 2
        await events.astop()


def test_events_travel_on_a_cluster(use: Callable[..., None]) -> None:
    with servers.cluster() as nodes:
        use([node.url.removesuffix("/0") for node in nodes], CLIENT_CLASS="resty_django.redis.cluster.ClusterClient")
        assert min(latencies(10)) < 0.1
        heard: list[Any] = []
        events.register(lambda data, *event_args: heard.append(data), "u")
        for _ in range(3):
            events.post("u", "e", "once", unique="x")
        assert eventually(lambda: heard == ["once"])
        events.stop()
    with pytest.raises(Unavailable):
        StreamChannel(RedisDict("events"), 100).last()
