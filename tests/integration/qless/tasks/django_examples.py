"""Tasks of Django that the tests put."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import django

from resty_django.txid import current

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

FAILURES: list[str] = []


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call() -> Any:
        return function()

    return call


@task(queue_name="q")
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="q")
async def aadd(a: int, b: int = 1) -> int:
    return a + b


@task(queue_name="q")
@wrapped
async def awrapped() -> str:
    return "awaited"


@task(queue_name="q")
@wrapped
def rows() -> Iterator[int]:
    yield 1


@task(queue_name="q", priority=10, takes_context=True)
def attempt(context: Any, word: str) -> list[Any]:
    result = context.task_result
    return [word, context.attempt, result.id, str(result.status), result.worker_ids, result.attempts]


@task(queue_name="q", takes_context=True)
async def aattempt(context: Any) -> int:
    return int(context.attempt)


@task(queue_name="q")
def fails() -> None:
    raise ValueError("this is wrong")


@task(queue_name="q", backend="again", takes_context=True)
def third_time(context: Any, limit: int) -> int:
    FAILURES.append("x")
    if context.attempt < limit:
        raise OSError(f"run {context.attempt}")
    return int(context.attempt)


@task(queue_name="q", backend="again", takes_context=True)
async def athird_time(context: Any, limit: int) -> int:
    if context.attempt < limit:
        raise OSError(f"run {context.attempt}")
    return int(context.attempt)


@task(queue_name="q")
def waits() -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.01)


@task(queue_name="q")
async def awaits() -> None:
    await asyncio.sleep(20)


@task(queue_name="q")
def no_json() -> object:
    return object()


@task(queue_name="q")
def txid() -> str | None:
    return current()
