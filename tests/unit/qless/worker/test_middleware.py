"""Middleware of the worker, without a worker."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from resty_django.qless import LostLock
from resty_django.qless.middleware.always import database
from resty_django.qless.middleware.bounds import resident
from resty_django.qless.middleware.retries import RetryPolicy
from resty_django.qless.outcomes import RetryLater
from resty_django.qless.worker.middleware import MemoryBound, Requeue, Retry


@pytest.mark.parametrize("middleware", [Retry(Exception), Requeue(Exception)])
def test_an_outcome_that_the_job_raises_passes(middleware: Any) -> None:
    outcome = RetryLater(30)
    steps = middleware(None)
    next(steps)
    with pytest.raises(RetryLater) as raised:
        steps.throw(outcome)
    assert raised.value is outcome


def test_a_job_that_has_lost_its_lock_is_not_retried() -> None:
    assert Retry(Exception).covers(OSError("gone"))
    assert not Retry(Exception).covers(LostLock("gone"))


def test_delays_grow_up_to_the_longest() -> None:
    assert [Retry(OSError, backoff=2).delay_after(n) for n in (1, 2, 3)] == [2, 4, 8]
    assert [Retry(OSError, backoff=5, factor=3).delay_after(n) for n in (1, 2, 3)] == [5, 15, 45]
    assert Retry(OSError, backoff=5, max_delay=7).delay_after(2) == 7
    assert Retry(OSError, backoff=9, max_delay=7).delay_after(10_000) == 7
    assert all(8 <= Retry(OSError, backoff=10, jitter=0.2).delay_after(1) <= 12 for _ in range(100))


def test_a_later_change_of_a_list_of_delays_has_no_effect() -> None:
    delays = [1.0, 5.0]
    policy = RetryPolicy(delays, (OSError,))
    delays.clear()
    assert [policy.delay_after(n) for n in (1, 2, 3)] == [1, 5, 5]


@pytest.mark.parametrize(
    "wrong",
    [Retry, Requeue, lambda: Retry(OSError, backoff=-1), lambda: Requeue(OSError, min_delay=5, max_delay=1)],
)
def test_wrong_arguments_are_refused(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        wrong()
    with pytest.raises(ValueError, match="bytes"):
        MemoryBound(0)


@pytest.mark.django_db  # an earlier test may have opened the connection
def test_a_job_sees_no_queries_of_the_last_one() -> None:
    connection.queries_log.append({"sql": "SELECT 1", "time": "0.001"})
    next(database(None))
    assert not connection.queries_log


def test_resident_memory_is_measured() -> None:
    assert 10_000_000 < resident() < 10_000_000_000
