"""Cancellation-safe writes: a cancelled task does not leave different values in L2 and L1."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

log = logger("resty_django.cache")

R = TypeVar("R")

tasks: Final[set[asyncio.Task[Any]]] = set()


async def arun_shielded(steps: Steps[R]) -> R:
    """Do the same as `arun`. If the caller is cancelled, the steps continue in the background; errors are logged."""
    task = asyncio.get_running_loop().create_task(arun(steps), name="resty-cache-write")
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise


def as_one_step(steps: Steps[Any]) -> Step:
    """Return a single step that performs all of these and is completed once it has begun."""
    return Step(run, arun_shielded, (steps,))


def _log_failure(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("The cache write of a cancelled task failed: %s", error)
