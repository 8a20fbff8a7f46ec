"""Time limit for a job."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import EllipsisType
from typing import Any

from ...clients.put_options import checked_options


class Timeout:
    """Raises `JobTimeout` in a job after `seconds` (a number, or a function of the job), so that the job fails.

    An async job is cancelled. A sync job in a thread gets the exception at its next line of Python, so not while it
    waits in C code, for example for a socket. If it still runs `kill_after` seconds later (by default 5), it is failed,
    and the process is replaced after its other jobs. With the pool "processes", the exception also ends Python's own
    waiting, and the process of the job is killed after `kill_after` seconds (by default, the setting `KILL_AFTER`).
    None: the job may continue.
    """

    def __init__(
        self, seconds: float | Callable[[Any], float], *, kill_after: float | EllipsisType | None = ...
    ) -> None:
        self.seconds = seconds if callable(seconds) else checked_options(timeout=seconds)["timeout"]
        self.kill_after = kill_after

    def __call__(self, job: Any) -> Generator[None, None, None]:
        seconds = self.seconds(job) if callable(self.seconds) else self.seconds
        job.limit(seconds, self.kill_after)
        yield
