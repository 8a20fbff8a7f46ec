"""Writing that is carried through: a task that is cancelled does not leave L2 with one value and L1 with another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from resty_django.events.steps import Step, Steps, arun, run

log = logging.getLogger("resty_django.cache")

R = TypeVar("R")

_tasks: Final[set[asyncio.Task[Any]]] = set()


async def arun_whole(steps: Steps[R]) -> R:
    """As `arun`. Where the caller is cancelled the steps go on in the background, and what they raise is logged."""
    task = asyncio.get_running_loop().create_task(arun(steps), name="resty-cache-write")
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_left_alone)
        raise


def whole(steps: Steps[Any]) -> Step:
    """The step that takes these steps as one."""
    return Step(run, arun_whole, (steps,))


@contextmanager
def known_or(forget: Callable[[], object]) -> Iterator[None]:
    """For steps that write to L2. Where the loop ends among them nobody knows what L2 has, and L1 has to `forget`.
    After an error of the dictionary L1 goes on answering."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        forget()
        raise


def _left_alone(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("what a task that was cancelled wrote to a cache failed: %s", error)


__all__ = ["arun_whole", "known_or", "whole"]
