"""The rules of posting and polling, on both engines, sync and async, under a clock that only tests move."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from django.dispatch import Signal

from resty_django.events import BadEvent, Event, NotConfigured, NotEncodable, Unavailable, events
from resty_django.events.channel import Channel
from resty_django.events.memory import LAST
from resty_django.events.stream import StreamChannel
from resty_django.shdict import SharedDict
from resty_django.shdict import Unavailable as DictUnavailable
from tests.dictionaries import Clock
from tests.integration.events.conftest import Make

in_memory = pytest.mark.parametrize("dictionary", ["lmdb"], indirect=True)
"""A stream of Redis has no numbers without data."""


def wipe(channel: Channel) -> None:
    """Empty what carries the events; on Redis not in the millisecond of an event, of which ids are made."""
    if isinstance(channel, StreamChannel):
        from resty_django.redis import connection

        time.sleep(0.002)
        connection(channel._alias).flushdb()
    else:
        channel.dictionary.flush_all()


# --- the table of fixed answers ---


async def test_a_process_hears_its_own_start_and_its_own_events(make: Make) -> None:
    one = await make().begin()
    await one.post("e1")
    assert one.heard == []
    assert await one.poll() == "done"
    assert one.heard == ["started", "e1"]
    assert await one.poll() == "done"
    assert one.heard == ["started", "e1"]


async def test_a_poll_in_a_handler_is_recursive(make: Make) -> None:
    one = await make().begin()
    inner: list[str] = []
    one.on("e1", lambda: inner.append(one.service.poll()))
    await one.post("e1")
    assert await one.poll() == "done"
    assert inner == ["recursive"]


async def test_local_events_of_a_handler_come_before_its_other_events_and_all_in_one_poll(make: Make) -> None:
    one = await make().begin()
    await one.poll()
    one.heard.clear()

    def more() -> None:
        one.service.post("s", "e2")
        one.service.post_local("s", "e3")
        assert one.heard == ["e1"]

    one.on("e1", more)
    await one.post("e1")
    assert await one.poll() == "done"
    assert one.heard == ["e1", "e3", "e2"]


@in_memory
async def test_an_event_without_data_is_waited_for_and_dropped(
    make: Make, channel: Channel, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Here two, which share one deadline."""
    one = await make().begin()
    await one.poll()
    channel.dictionary.incr(LAST, 2)
    await one.post("X")
    began = clock()
    assert await one.poll() == "done"
    assert clock() - began == pytest.approx(0.5)
    assert one.slept == [10] * 50
    assert one.heard == ["started", "X"]
    assert "dropping 2 events" in caplog.text
    assert "waiting for event data timed out" in caplog.text


@in_memory
async def test_data_that_comes_late_is_not_dropped(make: Make, channel: Channel, clock: Clock) -> None:
    one = await make().begin()
    await one.poll()
    record = channel.dictionary.get(f"event:{one.service.position}").replace(b"started", b"late")
    number = channel.dictionary.incr(LAST, 1)
    await one.post("X")
    sleep = one.service._sleep

    def late(seconds: float) -> None:
        sleep(seconds)
        if len(one.slept) == 3:
            channel.dictionary.set(f"event:{number}", record)

    async def alate(seconds: float) -> None:
        late(seconds)

    one.service._sleep, one.service._asleep = late, alate
    await one.poll()
    assert one.heard == ["started", "late", "X"]
    assert one.slept == [10, 10, 10]


async def test_after_a_wipe_all_events_are_handled(make: Make, channel: Channel) -> None:
    one = await make().begin()
    for number in range(3):
        await one.post(f"e{number}")
    await one.poll()
    assert len(one.heard) == 4
    one.heard.clear()
    wipe(channel)
    for number in range(6):
        await one.post(f"f{number}")
        await one.poll()
        assert one.heard[-1] == f"f{number}"
    assert one.heard == [f"f{number}" for number in range(6)]


@pytest.mark.parametrize("posted", [1, 3, 4, 5, 30])
async def test_a_wipe_is_noticed_however_many_events_follow_before_the_next_poll(
    make: Make, channel: Channel, posted: int
) -> None:
    one = await make().begin()
    for _ in range(3):
        await one.post("before")
    await one.poll()
    one.heard.clear()
    wipe(channel)
    for number in range(posted):
        await one.post(f"f{number}")
    await one.poll()
    assert one.heard == [f"f{number}" for number in range(posted)]


async def test_a_poll_right_after_a_wipe_finds_nothing_and_forgets_nothing(make: Make, channel: Channel) -> None:
    one = await make().begin()
    await one.poll()
    wipe(channel)
    assert await one.poll() == "done"
    await one.post("after")
    await one.poll()
    assert one.heard == ["started", "after"]


async def test_a_unique_event_runs_in_one_process(make: Make) -> None:
    one, two = await make(1).begin(), await make(2).begin()
    for each in (one, two):
        await each.poll()
        each.heard.clear()
    await one.post("e", unique="u")
    await two.post("e", unique="u")
    await two.poll()
    await one.poll()
    assert (one.heard, two.heard) == ([], ["e"])


async def test_a_unique_event_runs_again_in_a_process_that_polls_after_the_timeout(make: Make, clock: Clock) -> None:
    one, two = await make(1).begin(), await make(2).begin()
    for each in (one, two):
        await each.poll()
        each.heard.clear()
    await one.post("e", unique="u")
    await one.poll()
    clock.advance(1.999)
    await two.post("f", unique="u")
    await one.poll()
    assert one.heard == ["e"]
    clock.advance(0.001)
    await two.poll()
    assert two.heard == ["e"]


async def test_unregistering_moves_the_last_handler_into_the_hole(make: Make) -> None:
    one = await make().begin()
    called: list[str] = []
    handlers = {name: (lambda *given, name=name: called.append(name)) for name in "ABC"}
    for handler in handlers.values():
        one.service.registry.add(handler, "s")
    one.service.registry.remove(handlers["A"], "s")
    await one.post("e")
    await one.poll()
    assert called == ["C", "B"]


# --- posting ---


async def test_what_a_handler_is_given(make: Make) -> None:
    one = await make(pid=77).begin()
    given: list[Any] = []
    one.service.registry.add(lambda *args: given.append(args), "s", "e")
    await one.post("e", {"a": [1, None, "ü"]})
    await one.post("e")
    thing = object()
    one.service.post_local("s", "e", thing)
    await one.poll()
    assert given == [(thing, "e", "s", None), ({"a": [1, None, "ü"]}, "e", "s", 77), (None, "e", "s", 77)]
    assert given[0][0] is thing


async def test_wrong_events_are_refused_and_nothing_is_posted(make: Make) -> None:
    one = await make().begin()
    last = one.channel.last()
    for source, event in (("", "e"), (None, "e"), (7, "e"), ("s", ""), ("s", None)):
        for call in (one.service.post, one.service.post_local):
            with pytest.raises(BadEvent, match=r"^(source|event) is required"):
                call(source, event)  # type: ignore[arg-type]
    with pytest.raises(NotEncodable, match=r'^failed posting event "e" by "s"; '):
        await one.post("e", {1, 2})
    assert one.channel.last() == last
    await one.poll()
    assert one.heard == ["started"]


async def test_a_process_that_did_not_start_can_post_and_cannot_poll(make: Make) -> None:
    one, two = await make(1).begin(), make(2)
    await two.post("e")
    with pytest.raises(NotConfigured):
        await two.poll()
    await one.poll()
    assert one.heard == ["started", "e"]


async def test_older_events_are_not_heard(make: Make) -> None:
    one = await make(1).begin()
    await one.post("before")
    two = await make(2).begin()
    await one.post("after")
    await two.poll()
    assert two.heard == ["started", "after"]


async def test_beginning_twice_is_beginning_once(make: Make) -> None:
    one = await make().begin()
    await one.begin()
    await one.poll()
    assert one.heard == ["started"]


async def test_all_processes_hear_all_events_in_one_order(make: Make) -> None:
    many = [await make(pid).begin() for pid in range(3)]
    for number in range(600):
        await many[number % 3].post(str(number))
        if number % 50 == 0:
            await many[number % 2].poll()
    for each in many:
        await each.poll()
    for pid, each in enumerate(many):
        assert each.heard == ["started"] * (3 - pid) + [str(number) for number in range(600)]


# --- handlers ---


async def test_a_handler_that_fails_is_logged_and_stops_nobody(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    one = await make(pid=5).begin()

    def fails(*given: Any) -> None:
        raise ZeroDivisionError("just so")

    after: list[Any] = []
    one.service.registry.add(fails, "s")
    one.service.registry.add(lambda *given: after.append(given), "s")
    await one.post("e", "the data")
    await one.post("f")
    await one.poll()
    assert len(after) == 2
    (first, _) = (record for record in caplog.records if record.levelno == logging.ERROR)
    for part in ("fails", "'e' of 's'", "process 5", "'the data'"):
        assert part in first.getMessage()
    assert first.exc_info is not None
    assert first.exc_info[0] is ZeroDivisionError


async def test_a_coroutine_function_is_awaited(make: Make) -> None:
    one = await make().begin()
    order: list[str] = []

    async def slow(data: Any, event: str, source: str, pid: int) -> None:
        await asyncio.sleep(0.01)
        order.append("slow")

    class Callable:
        async def __call__(self, *given: Any) -> None:
            order.append("object")

    one.service.registry.add(slow, "s")
    one.service.registry.add(Callable(), "s")
    one.service.registry.add(lambda *given: order.append("quick"), "s")
    await one.post("e")
    if one.twins:
        await one.poll()
    else:
        await asyncio.to_thread(one.service.poll)
    assert order == ["slow", "object", "quick"]


async def test_a_coroutine_function_in_a_sync_poll_of_a_loop_is_told(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one = await make().begin()

    async def handler(*given: Any) -> None: ...

    one.service.registry.add(handler, "s")
    await one.post("e")
    one.service.poll()
    assert "poll() cannot run a coroutine function in the thread of a running loop: use apoll()" in caplog.text


async def test_a_signal_is_sent(make: Make) -> None:
    one = await make(pid=5).begin()
    paid = Signal()
    got: list[Any] = []

    def receiver(sender: Any, **named: Any) -> None:
        named.pop("signal")
        got.append((sender, named))

    def fails(**named: Any) -> None:
        raise ZeroDivisionError

    paid.connect(fails)
    paid.connect(receiver, sender=Event)
    one.service.registry.add(paid, "s", "paid")
    await one.post("paid", [1])
    await one.poll()
    assert got == [(Event, {"source": "s", "event": "paid", "data": [1], "pid": 5})]


# --- records that are none, and stores that are down ---


async def test_what_is_no_event_is_dropped(make: Make, channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    one = await make().begin()
    channel.append(b"rubbish", 0)
    await one.post("e")
    await one.poll()
    assert one.heard == ["started", "e"]
    assert "dropping an event of 7 bytes" in caplog.text


class Down:
    """Makes calls of a dictionary or channel fail after some that do not."""

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


async def test_a_store_that_is_down_is_told(make: Make, channel: Channel, down: Any) -> None:
    one = await make().begin()
    down("append", "last", "read")
    with pytest.raises(Unavailable, match=r'^failed posting event "e" by "s"; no answer'):
        await one.post("e")
    with pytest.raises(Unavailable, match=r"^The events cannot be read: no answer"):
        await one.poll()
    with pytest.raises(Unavailable, match=r"^The events cannot be started: no answer"):
        await make().begin()


async def test_a_failed_poll_is_made_good_by_the_next(
    make: Make, channel: Channel, down: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await make().begin()
    await one.post("e")
    with monkeypatch.context() as patch:
        for name in ("read", "aread"):
            patch.setattr(channel, name, Down() if name == "read" else Down().later)
        with pytest.raises(Unavailable):
            await one.poll()
    assert await one.poll() == "done"
    assert one.heard == ["started", "e"]


class Interrupt(BaseException):
    """As KeyboardInterrupt, or the end of a task."""


async def test_a_poll_that_is_interrupted_is_gone_on_with_after_that_event(make: Make) -> None:
    one = await make().begin()

    def interrupt(*given: Any) -> None:
        raise Interrupt

    async def ainterrupt(*given: Any) -> None:
        raise Interrupt

    one.service.registry.add(ainterrupt if one.twins else interrupt, "s", "e2")
    for number in range(1, 4):
        await one.post(f"e{number}")
    with pytest.raises(Interrupt):
        await one.poll()
    assert await one.poll() == "done"
    assert one.heard == ["started", "e1", "e2", "e3"]


async def test_a_child_of_a_fork_in_a_handler_goes_on_with_that_event(make: Make) -> None:
    """As far as a service can tell: it begins after the last event whose handlers are through."""
    one = await make(1).begin()
    await one.poll()
    handled: list[Any] = []
    one.on("e2", lambda: handled.append(one.service.handled))
    for number in range(1, 4):
        await one.post(f"e{number}")
    await one.poll()
    child = make(2)
    assert one.service.options is not None
    child.service.begin(one.channel, one.service.options, handled[0])
    await child.poll()
    assert child.heard == ["e2", "e3", "started"]


async def test_a_unique_event_that_cannot_be_claimed_is_dropped(
    make: Make, down: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = await make().begin()
    await one.post("e", unique="u")
    await one.post("f")
    down("claim")
    await one.poll()
    assert one.heard == ["started", "f"]
    assert "dropping event 'e' of 's': its unique value: no answer" in caplog.text


async def test_unique_values_are_texts_and_common_to_all_events(make: Make, dictionary: SharedDict) -> None:
    one = await make(pid=9).begin()
    await one.post("a", unique=1)
    await one.post("b", unique="1")
    await one.post("c", unique=2)
    await one.poll()
    assert one.heard == ["started", "a", "c"]
    assert dictionary.get("unique:1") == 9
    assert dictionary.ttl("unique:1") == 2


def test_the_own_events_are_exported() -> None:
    assert events.started == "started"
