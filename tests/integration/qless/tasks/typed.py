"""Calls of tasks that mypy accepts, and calls that it rejects; checked by `test_typing.py`, and never run."""

from __future__ import annotations

from typing import assert_type

from resty_django.qless import AsyncResult, Task, TaskContext, task


@task(queue="mail", retries=3)
def add(a: int, b: int = 1) -> int:
    return a + b


@task
async def shout(text: str) -> str:
    return text.upper()


@task(timeout=3)
async def whisper(text: str) -> str:
    return text.lower()


@task(bind=True, priority=1)
def name_of_run(self: TaskContext, name: str) -> bytes:
    return f"{name} {self.attempt}".encode()


async def accepted() -> None:
    assert_type(add(1), int)
    assert_type(add.delay(1, b=2), AsyncResult[int])
    assert_type(await shout("x"), str)
    assert_type(shout.delay("x"), AsyncResult[str])
    assert_type(await whisper("x"), str)
    assert_type((await whisper.adelay("x")).get(), str)
    assert_type(name_of_run.delay("x").get(), bytes)
    assert_type(add.apply_async((1,), countdown=3, priority=1), AsyncResult[int])
    add.s(1).set(queue="mail")
    accepts_any: Task[..., int] = add
    accepts_any(1)


def rejected() -> None:
    task(quue="mail")  # type: ignore[call-overload]
    task(retries="3")  # type: ignore[call-overload]
    add("x")  # type: ignore[arg-type]
    add.delay("x")  # type: ignore[arg-type]
    name_of_run("x", "y")  # type: ignore[call-arg]
    add.apply_async((1,), countdwn=3)  # type: ignore[call-arg]
    add.s(1).set(quue="mail")  # type: ignore[call-arg]
