"""Listeners without events: they sleep, and wake at once for any event."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from resty_django import events
from resty_django.cache.broadcasts.follower import JournalFollower
from resty_django.events import runtime
from resty_django.events.wire import NOT_EVENT
from resty_django.shdict import shdicts
from tests.integration.cache.cancelling import settle
from tests.servers import eventually

pytestmark = pytest.mark.usefixtures("site")

IDLE = 0.4
"""Seconds after which a listener without events sleeps."""


@pytest.fixture
def heard() -> list[float]:
    """When this process has heard each event of the source s."""
    times: list[float] = []
    events.register(lambda *event_args: times.append(time.monotonic()), "s")
    return times


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the listener has looked for events."""
    times: list[float] = []
    real = runtime.service().has_news

    def has_news() -> bool:
        times.append(time.monotonic())
        return real()

    monkeypatch.setattr(runtime.service(), "has_news", has_news)
    return times


def prompt(heard: list[float], post: Any) -> bool:
    """Return whether a sleeping listener hears an event much earlier than its next poll, in most of
    5 trials, since the machine may pause."""
    late = 0
    for _ in range(5):
        time.sleep(IDLE)
        count, began = len(heard), time.monotonic()
        post()
        assert eventually(lambda count=count: len(heard) > count)  # type: ignore[misc]
        late += heard[count] - began > 0.25
    return late < 3


def test_a_listener_without_events_looks_a_few_times_a_second(polls: list[float]) -> None:
    events.start()
    time.sleep(IDLE)
    polls.clear()
    time.sleep(2)
    assert len(polls) < 10


async def test_a_task_without_events_looks_a_few_times_a_second(polls: list[float], heard: list[float]) -> None:
    await events.astart()
    await asyncio.sleep(IDLE)
    polls.clear()
    await asyncio.sleep(2)
    assert len(polls) < 10
    for count in range(1, 4):
        await asyncio.sleep(IDLE)
        events.post("s", "e")
        await settle(lambda count=count: len(heard) == count)
    await events.astop()


def test_an_event_wakes_a_listener_that_sleeps(heard: list[float]) -> None:
    events.start()
    assert prompt(heard, lambda: events.post("s", "e"))


def test_a_local_event_wakes_a_listener_that_sleeps(heard: list[float]) -> None:
    events.start()
    assert prompt(heard, lambda: events.post_local("s", "e"))


def test_an_entry_of_another_journal_wakes_a_listener_that_sleeps(settings: Any, tmp_path: Path) -> None:
    path = {"PATH": str(tmp_path / "dicts")}
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"events": path, "l2": path}}
    times: list[float] = []

    class Follower(JournalFollower):
        def _apply(self, entry: bytes) -> None:
            times.append(time.monotonic())

    follower = Follower(shdicts["l2"])
    runtime.follow(follower)
    events.start()
    assert prompt(times, lambda: shdicts["l2"].append(bytes((NOT_EVENT,)) + b" of a cache"))


def test_a_ring_that_was_lost_costs_a_second(heard: list[float]) -> None:
    events.start()
    time.sleep(IDLE)
    bell = shdicts["events"].bell
    bell.waiting[0] = 0  # as a process does that is killed then
    events.post("s", "e")
    assert eventually(lambda: len(heard) == 1)
    assert prompt(heard, lambda: events.post("s", "e"))


def test_a_listener_without_a_bell_polls(
    polls: list[float], heard: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "mkfifo", refuse)
    events.start()
    assert prompt(heard, lambda: events.post("s", "e"))
    assert len(polls) > 50


def test_a_bell_that_was_deleted_costs_a_second(heard: list[float]) -> None:
    events.start()
    time.sleep(IDLE)
    shdicts["events"].bell.path.unlink()
    events.post("s", "e")
    assert eventually(lambda: len(heard) == 1)
    assert prompt(heard, lambda: events.post("s", "e"))


def test_a_listener_that_sleeps_stops_at_once() -> None:
    took = []
    for _ in range(3):
        events.start()
        time.sleep(IDLE)
        began = time.monotonic()
        events.stop()
        took.append(time.monotonic() - began)
    assert sorted(took)[1] < 0.25


def test_a_sleeping_listener_hears_nothing_once_polling_is_switched_off(heard: list[float]) -> None:
    events.configure(interval=0.01)
    time.sleep(IDLE)
    events.configure(interval=0)
    events.post("s", "e")
    time.sleep(1.5)
    assert not heard
    events.poll()
    assert len(heard) == 1


def test_a_child_of_a_process_that_listens_does_not_keep_its_files() -> None:
    events.start()
    assert eventually(lambda: bells_held() > 0)
    pid = os.fork()
    if not pid:
        os._exit(bells_held())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_listener_that_has_ended_keeps_no_file() -> None:
    events.start()
    assert eventually(lambda: bells_held() > 0)
    events.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "resty-events"]
    assert bells_held() == 0


def bells_held() -> int:
    """The number of FIFOs of bells that this process has open."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:  # the folder itself
            continue
    return sum(link.endswith("-bell") for link in links)
