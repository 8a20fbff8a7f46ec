"""Bounds of a job: the time it takes, and the memory of its process."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from types import EllipsisType

from ..clients.put_options import checked_options
from .job import WorkerJob


class Timeout:
    """Raises `JobTimeout` in a job after `seconds` (a number, or a function of the job), so that the job fails.

    An async job is cancelled. A sync job in a thread gets the exception at its next line of Python, so not while it
    waits in C code, for example for a socket. If it still runs `kill_after` seconds later (by default 5), it is failed,
    and the process is replaced after its other jobs. With the pool "processes", the exception also ends Python's own
    waiting, and the process of the job is killed after `kill_after` seconds (by default, the setting `KILL_AFTER`).
    None: the job may continue.
    """

    def __init__(
        self, seconds: float | Callable[[WorkerJob], float], *, kill_after: float | EllipsisType | None = ...
    ) -> None:
        self.seconds = seconds if callable(seconds) else checked_options(timeout=seconds)["timeout"]
        self.kill_after = kill_after

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        seconds = self.seconds(job) if callable(self.seconds) else self.seconds
        job.limit(seconds, self.kill_after)
        yield


class MemoryBound:
    """Replaces this process when it uses more than `limit` bytes of memory after a job."""

    def __init__(self, limit: int) -> None:
        if limit <= 0:
            raise ValueError("MemoryBound() needs a number of bytes greater than 0.")
        self.limit = limit

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        try:
            yield
        finally:
            if resident() > self.limit:
                job.retire_worker()


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
