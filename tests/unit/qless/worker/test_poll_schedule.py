"""Times at which queues are polled."""

from __future__ import annotations

import pytest

from resty_django.qless.worker.reservers import MIN_POLL_SECONDS, PollSchedule


def test_all_queues_are_due_at_first() -> None:
    schedule = PollSchedule(("a", "b"), 10.0)
    assert schedule.poll_at["a"] <= 100.0
    assert schedule.next_poll() == 0.0


def test_an_empty_queue_is_polled_after_the_interval_or_a_notification() -> None:
    schedule = PollSchedule(("a", "b"), 10.0)
    schedule.on_short_reply("a", 100.0)
    schedule.on_short_reply("b", 102.0)
    assert schedule.poll_at["a"] > 109.9
    assert schedule.poll_at["a"] <= 110.0
    assert schedule.next_poll() == 110.0
    schedule.on_job_available("b")
    assert schedule.poll_at["b"] <= 102.0
    schedule.on_job_available("unknown")
    schedule.on_short_reply("b", 103.0)
    schedule.poll_all()
    assert schedule.poll_at["a"] <= 103.0
    assert schedule.poll_at["b"] <= 103.0


@pytest.mark.parametrize(("seconds", "pause"), [(None, 10.0), (3.0, 3.0), (30.0, 10.0)])
def test_due_shortens_the_wait(seconds: float | None, pause: float) -> None:
    schedule = PollSchedule(("a",), 10.0)
    schedule.set_due("a", seconds, 100.0)
    assert schedule.next_poll() == 100.0 + pause


def test_a_queue_at_its_limit_is_polled_less_and_less_until_a_job_ends() -> None:
    schedule = PollSchedule(("a",), 10.0)
    pauses = []
    for _ in range(12):
        schedule.set_due("a", -1.0, 100.0)
        pauses.append(schedule.next_poll() - 100.0)
    assert pauses[:3] == pytest.approx([MIN_POLL_SECONDS, 2 * MIN_POLL_SECONDS, 4 * MIN_POLL_SECONDS])
    assert pauses[-1] == 10.0
    schedule.on_job_finished("a")
    assert schedule.poll_at["a"] <= 100.0
    schedule.on_full_reply("a")
    schedule.on_short_reply("a", 100.0)
    schedule.on_job_finished("a")
    assert schedule.poll_at["a"] > 101.0
