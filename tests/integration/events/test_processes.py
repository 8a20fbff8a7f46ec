"""Processes on both engines: the same order everywhere while processes start, end and are killed; forks; the end."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import pytest

from tests.integration.events.conftest import Start, Worker, ready


def heard(worker: Worker, who: str = "heard") -> list[Any]:
    """The data of the events of a process, in its order."""
    return [line[2] for line in worker.lines if line[0] == who and line[1] == "chat"]


def test_processes_hear_each_other(worker: Start) -> None:
    first = worker("listen")
    first.wait_for("ready", first.pid)
    second = worker("listen")
    second.wait_for("ready", second.pid)
    first.wait_until(lambda: first.lines.count(["heard", "started", None]) >= 2)
    second.wait_for("heard", "started", None)


def test_all_processes_hear_the_end_of_a_process_even_that_process(worker: Start) -> None:
    stays, goes = worker("listen"), worker("listen")
    ready((stays, goes))
    goes.leave()
    stays.wait_for("heard", "stopping", None)
    goes.wait_for("heard", "stopping", None)
    assert goes.errors() == ""


def test_a_process_with_an_interval_of_0_posts_its_end_too(worker: Start) -> None:
    stays, goes = worker("listen"), worker("listen", interval=0)
    ready((stays, goes))
    goes.leave()
    stays.wait_for("heard", "stopping", None)


def test_a_loop_hears_events_and_ends_well(worker: Start) -> None:
    """Coroutine functions run in the loop, other handlers in one thread next to it."""
    listener = worker("alisten")
    listener.wait_for("ready", listener.pid)
    chatter = worker("chatter", count=3, seed=1)
    chatter.wait_for("through")
    listener.wait_until(lambda: len([line for line in listener.lines if line[0] == "heard" and line[1] == "chat"]) == 3)
    assert all(line[3] is True for line in listener.lines if line[0] == "heard")
    listener.wait_until(lambda: any(line[0] == "thread" for line in listener.lines))
    assert {line[1] for line in listener.lines if line[0] == "thread"} == {"resty-events-handlers_0"}
    listener.leave()
    chatter.wait_for("heard", "stopping", None)
    listener.wait_for("heard", "stopping", None, True)
    assert listener.errors() == ""


def test_a_child_of_a_fork_hears_without_any_call_what_was_declared(worker: Start) -> None:
    parent = worker("fork", children=2)
    parent.wait_for("ready", parent.pid)
    parent.say("of the parent")
    for who in ("parent", "child0", "child1"):
        parent.wait_for(who, "of the parent")
        parent.wait_for(who, "of the child")
    assert ["forked", 0, True] in parent.lines
    assert {line[1] for line in parent.lines if line[0] == "registered"} == {parent.pid}
    assert all(parent.lines.count([who, "of the parent"]) == 1 for who in ("parent", "child0", "child1"))
    parent.leave()
    assert parent.errors() == ""


def test_a_child_of_a_process_that_does_not_listen_does_not_listen(worker: Start) -> None:
    parent = worker("fork", children=0)
    parent.wait_for("ready", parent.pid)
    parent.wait_for("forked", 0, False)
    parent.say("unheard")
    time.sleep(0.3)
    assert not [line for line in parent.lines if line[0] == "child0"]


def test_a_fork_while_the_listener_is_importing_waits_for_it(worker: Start) -> None:
    """A lock of the import system that another thread holds at the fork is never freed in the child."""
    process = worker("fork_at_once")
    process.wait_for("forked", 0)
    assert ["posted"] in process.lines
    assert [line for line in process.lines if line[0] == "importing"]


def come_and_go(worker: Start, kills: int, at_once: int) -> None:
    """Processes that post continuously, some of which are killed one by one, and one that hears everything."""
    chance = random.Random(7)
    observer = worker("listen")
    observer.wait_for("ready", observer.pid)
    every: list[Worker] = []
    alive: list[Worker] = []
    until = time.monotonic() + 60 + kills
    while len(every) - len(alive) < kills:
        assert time.monotonic() < until
        while len(alive) < at_once:
            alive.append(worker("chatter", count=100_000, seed=chance.random()))
            every.append(alive[-1])
        time.sleep(chance.random() * 0.2)
        settled = [process for process in alive if ["posted", 20] in process.lines]
        if settled:
            victim = chance.choice(settled)
            alive.remove(victim)
            victim.end(signal.SIGKILL)
    for process in every:
        if process in alive:
            process.end(signal.SIGKILL)
    last = worker("chatter", count=1, seed=1)
    last.wait_for("through")
    observer.wait_until(lambda: [last.pid, 0] in [data[:2] for data in heard(observer)], 60)

    everything = [(data[0], data[1]) for data in heard(observer)]
    assert len(everything) > 20 * kills
    assert len(set(everything)) == len(everything), "something was heard twice"
    positions = {event: at for at, event in enumerate(everything)}
    for process in every:
        own_events = [(data[0], data[1]) for data in heard(process)]
        assert own_events or ["posted", 20] not in process.lines, "a process that posted 20 events heard none"
        if own_events:
            start = positions[own_events[0]]
            assert own_events == everything[start : start + len(own_events)], "another order, or a gap"
        posted = [line[1] for line in process.lines if line[0] == "posted"]
        numbers = [number for pid, number in everything if pid == process.pid]
        assert numbers[: len(posted)] == posted, "an event that was posted was not heard"
        assert len(numbers) <= len(posted) + 1
    assert "dropping" not in observer.end()


def test_one_order_while_processes_come_and_go(worker: Start) -> None:
    come_and_go(worker, 4, 3)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_one_order_while_many_processes_come_and_go_for_long(worker: Start) -> None:
    come_and_go(worker, 80, 5)
