"""The events of this process: configuring, listening with a thread or a task, stores that fail, the end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.dispatch import Signal

from resty_django import events
from resty_django.events import handlers, runtime
from resty_django.events.channels import channel_of
from resty_django.shdict import Unavailable, shdicts
from tests.integration.cache.cancelling import settle
from tests.servers import eventually
from tests.threads import lose_connection

pytestmark = pytest.mark.usefixtures("site")


@pytest.fixture
def heard() -> list[str]:
    """The names of the events that this process hears."""
    names: list[str] = []
    events.register(lambda data, event, source, pid: names.append(event))
    return names


# --- configure ---


def test_configuring_starts_and_posts_started(heard: list[str]) -> None:
    assert not events.configured()
    events.configure()
    assert events.configured()
    assert events.running()
    assert eventually(lambda: heard == ["started"])
    events.post("s", "e")
    assert eventually(lambda: heard == ["started", "e"])


@pytest.mark.parametrize("options", [{"interval": 0.0}, {}])
def test_nothing_runs_where_the_interval_is_0(settings: Any, heard: list[str], options: dict[str, float]) -> None:
    if not options:
        settings.RESTY_DJANGO = {
            **settings.RESTY_DJANGO,
            "EVENTS": {**settings.RESTY_DJANGO.get("EVENTS", {}), "INTERVAL": 0.0},
        }
        events.start()
    else:
        events.configure(**options)
    assert not events.running()
    events.configure(interval=0.01)
    assert events.running()
    events.configure(interval=0.0)
    assert not events.running()


def test_the_first_configuring_does_not_poll_in_the_foreground() -> None:
    threads: list[str] = []
    events.register(lambda *event_args: threads.append(threading.current_thread().name))
    events.configure()
    assert eventually(lambda: threads == ["resty-events"])


def test_options_come_from_the_settings_and_the_call(settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "EVENTS": {"TIMEOUT": 7, "INTERVAL": 3}}
    events.configure(interval=0, retries=25)
    options = runtime.service().options
    assert options is not None
    assert (options.timeout, options.interval, options.retries) == (7, 0, 25)
    events.configure(timeout=5)
    options = runtime.service().options
    assert options is not None
    assert (options.timeout, options.interval, options.retries) == (5, 0, 25)


def test_a_later_configuring_polls_once(heard: list[str]) -> None:
    events.configure(interval=0)
    assert eventually(lambda: heard == ["started"])
    events.post("s", "e")
    time.sleep(0.05)
    assert heard == ["started"]
    events.configure()
    assert heard == ["started", "e"]


def test_polling_in_the_background_can_be_switched_on_later(heard: list[str]) -> None:
    events.configure(interval=0)
    events.post("s", "e")
    events.configure(interval=0.01)
    events.post("s", "f")
    assert eventually(lambda: heard == ["started", "e", "f"])


def test_the_dictionary_cannot_change(heard: list[str]) -> None:
    with pytest.raises(events.BadOption, match=r'^shm "nowhere" not found'):
        events.configure("nowhere")
    assert not events.configured()
    events.configure("events")
    with pytest.raises(events.BadOption, match=r"^the shm cannot be changed after the start"):
        events.configure("events")


def test_a_wrong_option_changes_nothing() -> None:
    with pytest.raises(events.BadOption, match=r"^timeout"):
        events.configure(timeout=0)
    assert not events.configured()
    events.configure(interval=0, timeout=3)
    before = runtime.service().options
    with pytest.raises(events.BadOption, match=r"^retries"):
        events.configure(interval=5, retries=1.5)  # type: ignore[arg-type]
    assert runtime.service().options == before
    with pytest.raises(TypeError):
        events.configure(shm="x")  # type: ignore[call-arg]


def test_another_dictionary_may_be_given(settings: Any, tmp_path: Any, heard: list[str]) -> None:
    path = {"PATH": str(tmp_path / "dicts")}
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"events": path, "other": {**path, "SIZE": 2**20}}}
    events.configure("other", interval=0)
    assert channel_of(shdicts["other"], 1).last() > 0
    assert channel_of(shdicts["events"], 1).last() == 0


# --- start and stop ---


def test_starting_twice_is_starting_once(heard: list[str]) -> None:
    events.start()
    events.start()
    events.post("s", "e")
    assert eventually(lambda: heard == ["started", "e"])
    assert [thread.name for thread in threading.enumerate()].count("resty-events") == 1


def test_what_is_posted_after_the_start_is_heard(heard: list[str]) -> None:
    events.start()
    assert events.configured()
    events.post("s", "e")
    events.stop()
    assert heard == ["started", "e", "stopping"]


def test_a_stop_ends_the_thread_and_a_later_start_works(heard: list[str]) -> None:
    events.start()
    events.stop()
    assert not events.running()
    assert not events.configured()
    with pytest.raises(events.NotConfigured):
        events.poll()
    heard.clear()
    events.post("s", "unheard")
    events.start()
    assert eventually(lambda: heard == ["started"])


def test_a_stop_without_a_listener_posts_stopping_too(heard: list[str]) -> None:
    runtime.ensure()
    assert not events.running()
    events.stop()
    assert heard == ["started", "stopping"]
    events.stop()
    assert heard == ["started", "stopping"]


def test_a_handler_that_hangs_does_not_keep_the_process_from_ending() -> None:
    hangs = threading.Event()
    events.register(lambda *event_args: hangs.wait(60), "s", "hang")
    events.start()
    events.post("s", "hang")
    time.sleep(0.05)
    began = time.monotonic()
    events.stop(0.2)
    assert 0.1 < time.monotonic() - began < 20
    hangs.set()


async def test_a_task_listens_in_the_loop(heard: list[str]) -> None:
    where: list[Any] = []

    async def handler(data: Any, event: str, source: str, pid: int) -> None:
        where.append((event, threading.current_thread() is threading.main_thread(), asyncio.get_running_loop()))

    events.register(handler, "s")
    await events.astart()
    await events.astart()
    assert events.running()
    await settle(events.configured)
    await events.apost("s", "e")
    events.post_local("s", "f")
    await settle(lambda: len(where) == 2)
    assert sorted(where, key=lambda entry: entry[0]) == [
        ("e", True, asyncio.get_running_loop()),
        ("f", True, asyncio.get_running_loop()),
    ]
    await events.astop()
    assert not events.running()
    assert not events.configured()
    assert heard[-1] == "stopping"
    assert heard.count("started") == 1


async def test_a_task_does_not_live_in_the_context_of_who_starts_it() -> None:
    """Under ASGI, that is the first request, in a separate thread that ends with it."""
    request = contextvars.ContextVar("request", default="none")
    values: list[str] = []

    async def handler(*event_args: Any) -> None:
        values.append(request.get())

    request.set("the first")
    events.register(handler)
    await events.astart()
    await settle(lambda: values)
    await events.astop()
    assert set(values) == {"none"}


async def test_a_task_that_listens_can_be_stopped_from_another_thread(heard: list[str], monkeypatch: Any) -> None:
    """The loop learns of it late, and a handler takes a while: it must not be interrupted."""
    loop, ended = asyncio.get_running_loop(), []
    tell = loop.call_soon_threadsafe

    async def handler(data: Any, event: str, *event_args: Any) -> None:
        await asyncio.sleep(0.4)
        ended.append(event)

    def tell_late(*args: Any) -> Any:
        time.sleep(0.3)
        return tell(*args)

    events.register(handler)
    await events.astart()
    await settle(lambda: ended)
    monkeypatch.setattr(loop, "call_soon_threadsafe", tell_late)
    await asyncio.to_thread(events.stop)
    assert not events.running()
    assert heard == ended == ["started", "stopping"]


# --- stores that fail ---


class EventStore:
    """The store of the events, which a test takes down. Caches of earlier tests may follow other dictionaries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = 0
        """Number of calls since it went down."""
        self._monkeypatch = monkeypatch

    def go_down(self) -> None:
        for name in ("journal_end", "read_journal", "append"):
            self._monkeypatch.setattr(shdicts["events"], name, self._refuse)

    def come_back(self) -> None:
        self._monkeypatch.undo()

    def _refuse(self, *args: Any, **options: Any) -> Any:
        self.refused += 1
        raise Unavailable("no answer")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> EventStore:
    return EventStore(monkeypatch)


def test_a_listener_survives_an_outage_and_logs_it_once(
    store: EventStore, heard: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    messages = ["Events are not received until the store is back: Unavailable: no answer"]
    events.start()
    assert eventually(lambda: heard == ["started"])
    store.go_down()
    with pytest.raises(events.Unavailable, match=r'^failed posting event "e" by "s"; no answer'):
        events.post("s", "e")
    assert eventually(lambda: store.refused >= 4)
    assert [record.getMessage() for record in caplog.records] == messages
    store.come_back()
    events.post("s", "f")
    assert eventually(lambda: heard == ["started", "missed", "f"])
    messages.append("Events are received again")
    assert eventually(lambda: [record.getMessage() for record in caplog.records] == messages)


def test_a_start_succeeds_once_the_store_is_back(
    store: EventStore, heard: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    store.go_down()
    began = time.monotonic()
    events.start(wait=0.1)
    assert time.monotonic() - began < 5
    assert events.running()
    assert not events.configured()
    with pytest.raises(events.Unavailable, match=r"^The events cannot be started"):
        events.configure()
    store.come_back()
    assert eventually(events.configured)
    assert eventually(lambda: heard == ["started"])


def test_an_exit_with_a_store_that_is_down_is_quiet(store: EventStore, caplog: pytest.LogCaptureFixture) -> None:
    runtime.ensure()
    store.go_down()
    events.stop()
    assert caplog.records == []


# --- followers ---


class Follower:
    """`read`: what a poll calls."""

    def __init__(self, read: Callable[[], object]) -> None:
        self.read = read
        self.dictionary = shdicts["events"]

    def has_news(self) -> bool:
        return False


def test_a_follower_that_disappears_during_a_poll_hides_no_other() -> None:
    """A garbage collection may end one at any time, also in the middle of a poll."""
    reads: list[str] = []
    disappearing = [Follower(lambda: reads.append("first"))]
    ending, last = Follower(disappearing.clear), Follower(lambda: reads.append("last"))
    for follower in (*disappearing, ending, last):
        runtime.follow(follower)
    runtime.ensure()
    events.poll()
    assert reads == ["first", "last"]
    events.poll()
    assert reads == ["first", "last", "last"]


# --- registering ---


def test_register_rejects_objects_that_cannot_be_called() -> None:
    for call in (events.register, events.register_weak, events.unregister, events.on_event()):
        with pytest.raises(TypeError, match=r"^callback"):
            call(7)


def test_a_handler_is_registered_and_unregistered(heard: list[str]) -> None:
    called: list[str] = []

    def handler(data: Any, event: str, source: str, pid: int) -> None:
        called.append(event)

    events.register(handler, "s", "e")
    runtime.ensure()
    events.post("s", "e")
    events.poll()
    assert events.unregister(handler, "s") is False
    assert events.unregister(handler, "s", "e") is True
    assert events.unregister(handler, "s", "e") is False
    events.post("s", "e")
    events.poll()
    assert called == ["e"]


def test_a_weak_handler_is_forgotten() -> None:
    class Page:
        heard: list[str] = []

        def handler(self, data: Any, event: str, source: str, pid: int) -> None:
            self.heard.append(event)

    page = Page()
    events.register_weak(page.handler, "s")
    runtime.ensure()
    events.post("s", "e")
    events.poll()
    del page
    gc.collect()
    events.post("s", "f")
    events.poll()
    assert Page.heard == ["e"]


def test_declared_handlers_survive_a_new_service() -> None:
    heard: list[str] = []
    signal = Signal()

    @events.on_event("s", "e", "f")
    def handler(data: Any, event: str, source: str, pid: int) -> None:
        heard.append(event)

    assert events.on_event("s", "g")(signal) is signal
    signal.connect(lambda event, **named: heard.append(event), weak=False)
    try:
        for _ in range(2):
            runtime.reset()
            runtime.ensure()
            for name in "efg":
                events.post("s", name)
            events.poll()
        assert heard == ["e", "f", "g"] * 2
    finally:
        assert events.unregister(handler, "s", "e", "f") is True
        assert events.unregister(signal, "s", "g") is True
    runtime.reset()
    assert "handler" not in [getattr(declared[0], "__name__", "") for declared in runtime.declarations]


def test_connections_of_handlers_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(
        "resty_django.events.listener.close_old_connections", lambda: closed.append(threading.current_thread().name)
    )
    events.register(lambda *event_args: None)
    events.start()
    assert eventually(lambda: set(closed) == {"resty-events"})


async def test_database_connections_of_the_handlers_thread_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(handlers, "close_old_connections", lambda: closed.append(threading.current_thread().name))
    events.register(lambda *event_args: None)
    await runtime.aensure()
    await events.apoll()
    assert set(closed) == {"resty-events-handlers_0"}


@pytest.mark.db
@pytest.mark.django_db(transaction=True)
async def test_handlers_in_a_loop_whose_thread_has_lost_its_database_connection(heard: list[str]) -> None:
    def use_database() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        lose_connection()

    async def handler(*event_args: Any) -> None:
        await sync_to_async(use_database)()
        heard.append("done")

    events.register(handler, "s")
    await events.astart()
    await settle(events.configured)
    for count in range(1, 3):
        await events.apost("s", "e")
        await settle(lambda count=count: heard.count("done") == count)
    await events.astop()


def test_sys_exit_in_a_handler_ends_no_listener(heard: list[str], caplog: pytest.LogCaptureFixture) -> None:
    def leave(*event_args: Any) -> None:
        raise SystemExit(3)

    events.register(leave, "s")
    events.start()
    events.post("s", "e")
    events.post("s", "f")
    assert eventually(lambda: [record.levelno for record in caplog.records] == [logging.ERROR] * 2)
    assert heard == ["started", "e", "f"]
