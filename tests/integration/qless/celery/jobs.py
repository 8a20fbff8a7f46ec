"""Jobs and tasks that Celery's workers run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from resty_django.qless import TaskContext, task
from resty_django.txid import current


@task(queue="q", bind=True)
def whose(self: TaskContext, number: int) -> list[Any]:
    return [number, self.hostname, os.getpid(), current()]


@task(queue="q")
async def awhose(number: int) -> int:
    return number


@task(queue="q", bind=True, retries=3, backoff=0.02)
def third_time(self: TaskContext) -> int:
    if self.attempt < 3:
        raise OSError("not yet")
    return self.attempt


@task(queue="q")
def fails() -> None:
    raise ValueError("broken on purpose")


@task(queue="q", timeout=0.3)
def endless() -> None:
    while True:
        time.sleep(0.01)


@task(queue="q")
def lengthy(path: str, seconds: float) -> str:
    """Says who has begun it, then takes its time; a second run takes none."""
    first = not Path(path).exists()
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    if first:
        time.sleep(seconds)
    return str(os.getpid())


@task(queue="q")
def nothing() -> None: ...
