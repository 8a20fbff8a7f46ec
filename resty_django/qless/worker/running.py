"""A job while this worker has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .chain import Middleware

Command = tuple[Any, ...]
"""Name and arguments of a command of the core."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a class of jobs is for the worker. `keep_result`: what the function returns is kept as the job's result,
    for `result_ttl` seconds (None: as long as the job)."""

    function: Callable[[Any], Any]
    is_async: bool = False
    middleware: tuple[Middleware, ...] = ()
    keep_result: bool = False
    result_ttl: float | None = None


COMPLETED: Final = "completed"
FAILED: Final = "failed"
RETRIED: Final = "retried"
LOST: Final = "lost"
RETURNED: Final = "returned"
BY_ITSELF: Final = "by itself"


@dataclass(slots=True, eq=False)
class Running:
    """A job, where it runs, and what is to be told to the server when it has ended.

    `beat_at`, `lease_end`, `since`: seconds of the monotonic clock. `cause`: why it was interrupted. `judged`: it has
    ended, and `end` and `command` say how. `abandoned`: nobody waits for it any more. `doubted`: a heartbeat was
    refused. `unsure`: the server may have been told how it ended. `checked`: its lock was held just before a requeue.
    """

    job: Any
    jid: str
    queue: str
    entry: Entry
    since: float
    beat_at: float
    lease_end: float
    cause: Exception | None = None
    thread: int = 0
    task: asyncio.Task[None] | None = None
    judged: bool = False
    abandoned: bool = False
    doubted: bool = False
    unsure: bool = False
    checked: bool = False
    end: str = ""
    command: Command | None = None


__all__ = ["BY_ITSELF", "COMPLETED", "FAILED", "LOST", "RETRIED", "RETURNED", "Command", "Entry", "Running"]
