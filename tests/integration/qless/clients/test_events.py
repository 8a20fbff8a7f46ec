"""Events: subscriptions, handlers and outages."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from resty_django.qless import Client, Events
from tests import servers
from tests.integration.qless.conftest import Invoke, pop
from tests.servers import until

pytestmark = [pytest.mark.redis, pytest.mark.contract]


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    return Invoke(request.param)


@contextmanager
def listening(events: Events, invoke: Invoke, **options: Any) -> Iterator[None]:
    """The events listen in a thread, and have begun to."""
    ready = threading.Event()
    events.on_ready(ready.set)

    def listen() -> None:
        if invoke.kind == "sync":
            events.listen(**options)
        else:
            asyncio.run(events.alisten(**options))

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        events.stop()
        thread.join(30)
        assert not thread.is_alive()


def eventually(check: Callable[[], bool]) -> None:
    assert until(check)


def test_functions_are_called_with_the_payload(client: Client, invoke: Invoke) -> None:
    events = client.events()
    heard: list[Any] = []

    @events.on("log")
    def tell(message: str) -> None:
        heard.append(json.loads(message))

    events.on("track", heard.append)
    with listening(events, invoke):
        client.queues["q"].put("K", jid="j")
        client.track("j")
        eventually(lambda: len(heard) == 2)
    assert heard == [{"event": "put", "jid": "j", "queue": "q"}, "j"]


def test_a_callback_gets_the_channel_too(client: Client, invoke: Invoke) -> None:
    events = client.events()
    heard: list[Any] = []
    with listening(events, invoke, names=["put", "completed", "w:w"], callback=lambda *pair: heard.append(pair)):
        client.queues["q"].put("K", jid="j")
        client.track("j")
        job = pop(client.queues["q"])
        client.queues["q"].put("K", jid="j")
        client.queues["q"].pop().complete()  # type: ignore[union-attr]
        job.cancel()
        eventually(lambda: len(heard) == 2)
    assert heard == [("put", "j"), ("completed", "j")]


def test_a_worker_hears_of_a_lost_lock(client: Client, valkey_url: str, invoke: Invoke) -> None:
    other_client = Client(valkey_url, worker_name="other")
    events = client.events()
    heard: list[Any] = []
    events.on("w:w", heard.append)
    client.queues["q"].put("K", jid="j")
    client.queues["q"].pop()
    with listening(events, invoke):
        other_client.queues["q"].put("K", jid="j")
        eventually(lambda: bool(heard))
    assert json.loads(heard[0]) == {"event": "lock_lost", "jid": "j", "worker": "w"}
    other_client.close()


def test_channels_come_and_go_while_listening(client: Client, invoke: Invoke, valkey: Redis) -> None:
    events = client.events()
    heard: list[Any] = []
    events.on("first", lambda message: heard.append(("first", message)))
    with listening(events, invoke):
        events.on("second", lambda message: heard.append(("second", message)))
        eventually(lambda: valkey.publish("ql:second", "a") == 1)
        eventually(lambda: ("second", "a") in heard)
        events.off("first")
        eventually(lambda: valkey.publish("ql:first", "b") == 0)
        events.off("second")
        eventually(lambda: valkey.publish("ql:second", "c") == 0)
        events.on("first", lambda message: heard.append(("again", message)))
        eventually(lambda: valkey.publish("ql:first", "d") == 1)
        eventually(lambda: ("again", "d") in heard)


def test_an_error_in_a_function_is_logged_and_the_next_is_called(
    client: Client, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    events = client.events()
    heard: list[Any] = []
    events.on("track", lambda message: 1 / 0)  # type: ignore[arg-type, return-value]
    events.on("track", heard.append)
    client.queues["q"].put("K", jid="j")
    with caplog.at_level(logging.ERROR, "resty_django.qless"), listening(events, invoke):
        client.track("j")
        eventually(lambda: heard == ["j"])
    assert "division by zero" in caplog.text


async def test_coroutine_functions_are_awaited(client: Client) -> None:
    events = client.events()
    heard: list[str] = []

    @events.on("track")
    async def tell(message: str) -> None:
        await asyncio.sleep(0)
        heard.append(message)
        events.stop()

    await client.queues["q"].aput("K", jid="j")
    ready = asyncio.Event()
    events.on_ready(ready.set)
    listening = asyncio.create_task(events.alisten())
    await asyncio.wait_for(ready.wait(), 30)
    await client.atrack("j")
    await asyncio.wait_for(listening, 30)
    assert heard == ["j"]


async def test_events_can_be_iterated(client: Client, invoke: Invoke) -> None:
    events = client.events()
    events.on("track", lambda message: None)
    events.on("untrack", lambda message: None)
    client.queues["q"].put("K", jid="j")
    tracking = threading.Thread(target=lambda: (client.track("j"), client.untrack("j")))
    events.on_ready(tracking.start)
    heard = []
    if invoke.kind == "sync":
        for pair in events:
            heard.append(pair)
            if len(heard) == 2:
                break
    else:
        async for pair in events:
            heard.append(pair)
            if len(heard) == 2:
                break
    tracking.join(30)
    assert heard == [("track", "j"), ("untrack", "j")]


def test_an_idle_worker_is_woken_at_once(client: Client, invoke: Invoke) -> None:
    events = client.events()
    woken: list[float] = []
    events.on("wake:q", lambda message: woken.append(time.monotonic()))
    with listening(events, invoke):
        took = []
        for number in range(5):
            start = time.monotonic()
            client.queues["q"].put("K")
            eventually(lambda number=number: len(woken) > number)  # type: ignore[misc]
            took.append(woken[number] - start)
    assert min(took) < 0.1


def test_events_go_on_after_the_server_was_lost(invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    with servers.one() as server, caplog.at_level(logging.INFO, "resty_django.qless"):
        client = Client(server.url)
        events = client.events()
        heard: list[Any] = []
        times: list[int] = []
        events.on("put", heard.append)
        events.on_ready(lambda: times.append(1))
        with listening(events, invoke):
            server.kill()
            eventually(lambda: "receives no events" in caplog.text)
            server.start()
            eventually(lambda: len(times) == 2)
            server.call("PUBLISH", "ql:put", "j")
            eventually(lambda: heard == ["j"])
            eventually(lambda: "receives events again" in caplog.text)
        assert caplog.text.count("receives no events") == 1
        client.close()


def test_a_server_that_says_nothing_is_lost(
    invoke: Invoke, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers.one() as server, caplog.at_level(logging.INFO, "resty_django.qless"):
        client = Client(server.url)
        events = client.events()
        heard: list[Any] = []
        times: list[int] = []
        events.on("put", heard.append)
        events.on_ready(lambda: times.append(1))
        with listening(events, invoke):
            monkeypatch.setattr("resty_django.redis.pubsub.SILENCE_SECONDS", 0.5)
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda: "has been silent" in caplog.text)
            finally:
                server.process.send_signal(signal.SIGCONT)
                monkeypatch.undo()
            eventually(lambda: len(times) == 2)
            server.call("PUBLISH", "ql:put", "j")
            eventually(lambda: heard == ["j"])
        client.close()


def test_a_server_that_is_idle_but_alive_is_not_lost(
    client: Client, invoke: Invoke, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, valkey: Redis
) -> None:
    monkeypatch.setattr("resty_django.redis.pubsub.SILENCE_SECONDS", 0.5)
    events = client.events()
    heard: list[Any] = []
    events.on("put", heard.append)
    pings = int(valkey.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])
    with listening(events, invoke):
        eventually(lambda: valkey.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"] >= pings + 3)
        valkey.publish("ql:put", "j")
        eventually(lambda: heard == ["j"])
    assert "receives no events" not in caplog.text


def test_a_server_that_is_down_from_the_start(invoke: Invoke) -> None:
    with servers.one() as server:
        server.kill()
        client = Client(server.url)
        events = client.events()
        events.on("put", lambda message: None)
        ready = threading.Event()
        events.on_ready(ready.set)
        listen = events.listen if invoke.kind == "sync" else lambda: asyncio.run(events.alisten())
        thread = threading.Thread(target=listen)
        thread.start()
        server.start()
        assert ready.wait(30)
        events.stop()
        thread.join(30)
        client.close()


def test_a_stopped_listener_does_not_listen_again(client: Client, invoke: Invoke) -> None:
    events = client.events()
    events.stop()
    events.listen() if invoke.kind == "sync" else asyncio.run(events.alisten())
    assert events.stopped
