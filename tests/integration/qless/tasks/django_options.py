"""Tasks of Django with options of jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import django

from resty_django import qless
from resty_django.qless import TaskOutcome
from resty_django.qless.outcomes import RetryLater

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

HAS_OPTIONS = not (6, 0) <= django.VERSION < (6, 1)
"""Whether `@task` takes options of the backend."""
FAILURES: list[str] = []
OUTCOMES: list[TaskOutcome] = []


def task_with(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `@task` with options; on Django 6.0, add them afterwards."""

    def decorator(function: Callable[..., Any]) -> Any:
        if HAS_OPTIONS:
            return task(queue_name="q", **options)(function)
        return replace(task(queue_name="q")(function), **options)  # type: ignore[type-var]

    return decorator


def fail_once() -> str:
    if FAILURES:
        raise OSError(FAILURES.pop())
    return "sent"


@qless.task(queue="q")
def ended(outcome: TaskOutcome) -> None:
    OUTCOMES.append(outcome)


@task_with(retries=2, backoff=[10, 100])
def flaky() -> str:
    return fail_once()


@task_with(retries=2, backoff=[10, 100])
async def aflaky() -> str:
    return fail_once()


@task_with(retries=2)
def retried() -> str:
    return fail_once()


@task_with(backoff=10)
def delayed() -> str:
    return fail_once()


@task_with(retries=0)
def final() -> str:
    return fail_once()


@task(queue_name="q")
def plain() -> str:
    return fail_once()


@task(queue_name="q")
def again_later() -> str:
    if FAILURES:
        FAILURES.clear()
        raise RetryLater(10)
    return "sent"


@task_with(timeout=0.2, retries=1)
def slow() -> None:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        time.sleep(0.01)


@task_with(timeout=0.2, retries=1)
async def aslow() -> None:
    await asyncio.sleep(5)


@task_with(unique=True)
def invoice(order: int, copies: int = 1) -> str:
    fail_once()
    return f"{copies} x {order}"


@task_with(unique=True, retries=0)
def once() -> str:
    return fail_once()


@task_with(unique=["order"])
def by_order(order: int, copies: int = 1) -> int:
    return order


@task_with(rate="1/m")
def limited() -> None: ...


@task_with(tags=["mail", "slow"], expires=60)
def short_lived(number: int) -> int:
    return number


@task_with(on_success=ended, on_failure=[ended.s()], on_complete=ended.si("the end"))
def followed(number: int) -> float:
    return 1 / number
