"""Tasks of a shop that the tests enqueue."""

from __future__ import annotations

import asyncio

from django.contrib.auth.models import Group

from resty_django.qless import TaskContext, task

FAILURES: list[str] = []


@task(queue="mail", priority=3, tags=["billing"])
def send_invoice(order: int, copy: bool = False) -> str:
    return f"invoice {order}"


@task
def total(numbers: list[int], extra: int = 0) -> int:
    return sum(numbers) + extra


@task
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@task(retries=2, backoff=[30, 60])
def flaky() -> str:
    if FAILURES:
        raise ConnectionError(FAILURES.pop())
    return "sent"


@task
def rename(old: str, new: str) -> None:
    Group.objects.filter(name=old).update(name=new)


@task(bind=True)
def attempt(context: TaskContext) -> int:
    return context.attempt


@task
def follow(left: int) -> None:
    follow.delay(left - 1) if left else send_invoice.delay(0)


@task
def forever() -> None:
    forever.delay()
