"""The rules of posting and polling, on both engines, sync and async, with a test's clock."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from django.dispatch import Signal

from resty_django.events import BadEvent, Event, NotConfigured, NotEncodable, Unavailable, events
from resty_django.events.channels import Channel
from resty_django.events.channels.stream import StreamChannel
from resty_django.shdict import SharedDict
from resty_django.shdict import Unavailable as DictUnavailable
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import Clock
from tests.integration.events.conftest import Make

pytestmark = pytest.mark.contract


def wipe(channel: Channel) -> None:
    """Empty the channel; on Redis not in the millisecond of an event, because IDs contain the time."""
    if isinstance(channel, StreamChannel):
        from resty_django.redis import connection

        time.sleep(0.002)
        assert isinstance(channel.dictionary, RedisDict)
        connection(channel.dictionary.alias).flushdb()
    else:
        channel.dictionary.flush_all()


# --- the table of fixed answers ---


async def test_a_process_hears_its_own_start_and_its_own_events(make: Make) -> None:
    process = await make().begin()
    await process.post("e1")
    assert process.heard == []
    assert await process.poll() == "done"
    assert process.heard == ["started", "e1"]
    assert await process.poll() == "done"
    assert process.heard == ["started", "e1"]


async def test_a_poll_in_a_handler_is_recursive(make: Make) -> None:
    process = await make().begin()
    inner: list[str] = []
    process.on("e1", lambda: inner.append(process.service.poll()))
    await process.post("e1")
    assert await process.poll() == "done"
    assert inner == ["recursive"]


async def test_local_events_of_a_handler_come_before_its_other_events_and_all_in_one_poll(make: Make) -> None:
    process = await make().begin()
    await process.poll()
    process.heard.clear()

    def more() -> None:
        process.service.post("s", "e2")
        process.service.post_local("s", "e3")
        assert process.heard == ["e1"]

    process.on("e1", more)
    await process.post("e1")
    assert await process.poll() == "done"
    assert process.heard == ["e1", "e3", "e2"]


async def test_after_a_wipe_all_events_are_handled(make: Make, channel: Channel) -> None:
    process = await make().begin()
    for number in range(3):
        await process.post(f"e{number}")
    await process.poll()
    assert len(process.heard) == 4
    process.heard.clear()
    wipe(channel)
    for number in range(6):
        await process.post(f"f{number}")
        await process.poll()
        assert process.heard[-1] == f"f{number}"
    assert process.heard == [f"f{number}" for number in range(6)]


@pytest.mark.parametrize("posted", [1, 3, 4, 30])
async def test_a_wipe_is_noticed_however_many_events_follow_before_the_next_poll(
    make: Make, channel: Channel, posted: int
) -> None:
    process = await make().begin()
    for _ in range(3):
        await process.post("before")
    await process.poll()
    process.heard.clear()
    wipe(channel)
    for number in range(posted):
        await process.post(f"f{number}")
    await process.poll()
    assert process.heard == [f"f{number}" for number in range(posted)]


async def test_a_poll_right_after_a_wipe_finds_nothing_and_forgets_nothing(make: Make, channel: Channel) -> None:
    process = await make().begin()
    await process.poll()
    wipe(channel)
    assert await process.poll() == "done"
    await process.post("after")
    await process.poll()
    assert process.heard == ["started", "after"]


async def test_a_unique_event_runs_in_one_process(make: Make) -> None:
    first, second = await make(1).begin(), await make(2).begin()
    for process in (first, second):
        await process.poll()
        process.heard.clear()
    await first.post("e", unique="u")
    await second.post("e", unique="u")
    await second.poll()
    await first.poll()
    assert (first.heard, second.heard) == ([], ["e"])


async def test_a_unique_event_runs_again_in_a_process_that_polls_after_the_timeout(make: Make, clock: Clock) -> None:
    first, second = await make(1).begin(), await make(2).begin()
    for process in (first, second):
        await process.poll()
        process.heard.clear()
    await first.post("e", unique="u")
    await first.poll()
    clock.advance(1.999)
    await second.post("f", unique="u")
    await first.poll()
    assert first.heard == ["e"]
    clock.advance(0.001)
    await second.poll()
    assert second.heard == ["e"]


# --- posting ---


async def test_a_handler_gets_data_event_source_and_pid(make: Make) -> None:
    process = await make(pid=77).begin()
    received: list[Any] = []
    process.service.registry.add(lambda *args: received.append(args), "s", "e")
    await process.post("e", {"a": [1, None, "ü"]})
    await process.post("e")
    thing = object()
    process.service.post_local("s", "e", thing)
    await process.poll()
    assert received == [(thing, "e", "s", None), ({"a": [1, None, "ü"]}, "e", "s", 77), (None, "e", "s", 77)]
    assert received[0][0] is thing


async def test_wrong_events_are_refused_and_nothing_is_posted(make: Make) -> None:
    process = await make().begin()
    last = process.channel.last()
    for source, event in (("", "e"), (None, "e"), (7, "e"), ("s", ""), ("s", None)):
        for call in (process.service.post, process.service.post_local):
            with pytest.raises(BadEvent, match=r"^(source|event)"):
                call(source, event)  # type: ignore[arg-type]
    with pytest.raises(NotEncodable, match=r'^failed posting event "e" by "s"; '):
        await process.post("e", {1, 2})
    assert process.channel.last() == last
    await process.poll()
    assert process.heard == ["started"]


async def test_a_process_that_did_not_start_can_post_and_cannot_poll(make: Make) -> None:
    first, second = await make(1).begin(), make(2)
    await second.post("e")
    with pytest.raises(NotConfigured):
        await second.poll()
    await first.poll()
    assert first.heard == ["started", "e"]


async def test_older_events_are_not_heard(make: Make) -> None:
    process = await make(1).begin()
    await process.post("before")
    second = await make(2).begin()
    await process.post("after")
    await second.poll()
    assert second.heard == ["started", "after"]


async def test_beginning_twice_is_beginning_once(make: Make) -> None:
    process = await make().begin()
    await process.begin()
    await process.poll()
    assert process.heard == ["started"]


async def test_all_processes_hear_all_events_in_one_order(make: Make) -> None:
    many = [await make(pid).begin() for pid in range(3)]
    for number in range(600):
        await many[number % 3].post(str(number))
        if number % 50 == 0:
            await many[number % 2].poll()
    for process in many:
        await process.poll()
    for pid, process in enumerate(many):
        assert process.heard == ["started"] * (3 - pid) + [str(number) for number in range(600)]


# --- handlers ---


async def test_a_handler_that_fails_is_logged_and_stops_nobody(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    process = await make(pid=5).begin()

    def fails(*event_args: Any) -> None:
        raise ZeroDivisionError("just so")

    after: list[Any] = []
    process.service.registry.add(fails, "s")
    process.service.registry.add(lambda *event_args: after.append(event_args), "s")
    await process.post("e", "the data")
    await process.post("f")
    await process.poll()
    assert len(after) == 2
    (first, _) = (record for record in caplog.records if record.levelno == logging.ERROR)
    for phrase in ("fails", "'e' of 's'", "process 5", "'the data'"):
        assert phrase in first.getMessage()
    assert first.exc_info is not None
    assert first.exc_info[0] is ZeroDivisionError


async def test_a_coroutine_function_is_awaited(make: Make) -> None:
    process = await make().begin()
    order: list[str] = []

    async def slow(data: Any, event: str, source: str, pid: int) -> None:
        await asyncio.sleep(0.01)
        order.append("slow")

    class Callable:
        async def __call__(self, *event_args: Any) -> None:
            order.append("object")

    process.service.registry.add(slow, "s")
    process.service.registry.add(Callable(), "s")
    process.service.registry.add(lambda *event_args: order.append("quick"), "s")
    await process.post("e")
    if process.twins:
        await process.poll()
    else:
        await asyncio.to_thread(process.service.poll)
    assert order == ["slow", "object", "quick"]


async def test_a_sync_poll_in_a_loop_logs_a_coroutine_function(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    process = await make().begin()

    async def handler(*event_args: Any) -> None: ...

    process.service.registry.add(handler, "s")
    await process.post("e")
    process.service.poll()
    assert "poll() cannot run a coroutine function in the thread of a running loop. Use apoll()." in caplog.text


async def test_a_signal_is_sent(make: Make) -> None:
    process = await make(pid=5).begin()
    paid = Signal()
    got: list[Any] = []

    def receiver(sender: Any, **named: Any) -> None:
        named.pop("signal")
        got.append((sender, named))

    def fails(**named: Any) -> None:
        raise ZeroDivisionError

    paid.connect(fails)
    paid.connect(receiver, sender=Event)
    process.service.registry.add(paid, "s", "paid")
    await process.post("paid", [1])
    await process.poll()
    assert got == [(Event, {"source": "s", "event": "paid", "data": [1], "pid": 5})]


# --- records that are none, and stores that are down ---


async def test_malformed_events_are_dropped(make: Make, channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    process = await make().begin()
    channel.append(b"rubbish", 0)
    await process.post("e")
    await process.poll()
    assert process.heard == ["started", "e"]
    assert "dropping an event of 7 bytes" in caplog.text


class Down:
    """Makes calls of a dictionary or channel fail after a number of successful ones."""

    def __init__(self, after: int = 0) -> None:
        self.after = after

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise DictUnavailable("no answer")

    async def later(self, *args: Any, **options: Any) -> Any:
        raise DictUnavailable("no answer")


@pytest.fixture
def down(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make some calls of the channel fail."""

    def down(*names: str) -> None:
        for name in names:
            monkeypatch.setattr(channel, name, Down())
            monkeypatch.setattr(channel, f"a{name}", Down().later)

    return down


async def test_a_store_that_is_down_raises_unavailable(make: Make, channel: Channel, down: Any) -> None:
    process = await make().begin()
    down("append", "last", "read")
    with pytest.raises(Unavailable, match=r'^failed posting event "e" by "s"; no answer'):
        await process.post("e")
    with pytest.raises(Unavailable, match=r"^The events cannot be read: no answer"):
        await process.poll()
    with pytest.raises(Unavailable, match=r"^The events cannot be started: no answer"):
        await make().begin()


async def test_the_poll_after_a_failure_delivers_all_events(
    make: Make, channel: Channel, down: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await make().begin()
    await process.post("e")
    with monkeypatch.context() as patch:
        for name in ("read", "aread"):
            patch.setattr(channel, name, Down() if name == "read" else Down().later)
        with pytest.raises(Unavailable):
            await process.poll()
    assert await process.poll() == "done"
    assert process.heard == ["missed", "started", "e"]
    assert await process.poll() == "done"
    assert process.heard == ["missed", "started", "e"]


class Interrupt(BaseException):
    """Like KeyboardInterrupt, or the end of a task."""


async def test_an_interrupted_poll_continues_after_that_event(make: Make) -> None:
    process = await make().begin()

    def interrupt(*given: Any) -> None:
        raise Interrupt

    async def ainterrupt(*given: Any) -> None:
        raise Interrupt

    process.service.registry.add(ainterrupt if process.twins else interrupt, "s", "e2")
    for number in range(1, 4):
        await process.post(f"e{number}")
    with pytest.raises(Interrupt):
        await process.poll()
    assert await process.poll() == "done"
    assert process.heard == ["started", "e1", "e2", "e3"]


async def test_a_child_forked_in_a_handler_handles_that_event_again(make: Make) -> None:
    """To the service, that means: it begins after the last event whose handlers have finished."""
    process = await make(1).begin()
    await process.poll()
    handled: list[Any] = []
    process.on("e2", lambda: handled.append(process.service.handled))
    for number in range(1, 4):
        await process.post(f"e{number}")
    await process.poll()
    child = make(2)
    assert process.service.options is not None
    child.service.begin(process.channel, process.service.options, handled[0])
    await child.poll()
    assert child.heard == ["e2", "e3", "started"]


async def test_a_unique_event_that_cannot_be_claimed_is_dropped(
    make: Make, down: Any, caplog: pytest.LogCaptureFixture
) -> None:
    process = await make().begin()
    await process.post("e", unique="u")
    await process.post("f")
    down("claim")
    await process.poll()
    assert process.heard == ["started", "f"]
    assert "dropping event 'e' of 's': its unique value: no answer" in caplog.text


async def test_unique_values_are_texts_and_common_to_all_events(make: Make, dictionary: SharedDict) -> None:
    process = await make(pid=9).begin()
    await process.post("a", unique=1)
    await process.post("b", unique="1")
    await process.post("c", unique=2)
    await process.poll()
    assert process.heard == ["started", "a", "c"]
    assert dictionary.get("unique:1") == 9
    assert dictionary.ttl("unique:1") == 2


def test_the_own_events_are_exported() -> None:
    assert events.started == "started"
