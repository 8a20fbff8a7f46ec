"""Cancellation-safe writes: a task that is cancelled does not leave L2 with one value and L1 with another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

log = logger("resty_django.cache")

R = TypeVar("R")

tasks: Final[set[asyncio.Task[Any]]] = set()


async def arun_shielded(steps: Steps[R]) -> R:
    """As `arun`. If the caller is cancelled, the steps go on in the background, and their errors are logged."""
    task = asyncio.get_running_loop().create_task(arun(steps), name="resty-cache-write")
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def as_one_step(steps: Steps[Any]) -> Step:
    """Return a single step that takes all of these; once begun, it is carried through."""
    return Step(run, arun_shielded, (steps,))


@contextmanager
def forget_if_interrupted(forget: Callable[[], object]) -> Iterator[None]:
    """Wrap steps that write to L2. Where the loop ends among them it is unknown what L2 has, and L1 has to `forget`.
    After an error of the dictionary L1 goes on answering."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        forget()
        raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("what a task that was cancelled wrote to a cache failed: %s", error)
