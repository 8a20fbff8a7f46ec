"""Calls of tasks that mypy accepts, and calls that it rejects; checked by `test_typing.py`, and never run."""

from __future__ import annotations

from typing import Any, assert_type

from resty_django.qless import AsyncResult, Task, TaskContext, group, task


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
    add.s(1).set(queue="mail", on_success=shout, link=[add.s(1), shout], if_failed="skip")
    add.apply_async((1,), on_failure=name_of_run.s(), allow_failure=True)
    assert_type(group(add.s(1), name="sums", on_complete=shout).delay().get(), Any)
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
    add.s(1).set(if_failed="ski")  # type: ignore[arg-type]
    add.apply_async((1,), on_success="shout")  # type: ignore[arg-type]
    group(add.s(1), nam="sums")  # type: ignore[call-arg]
    task(on_failure=3)  # type: ignore[call-overload]
