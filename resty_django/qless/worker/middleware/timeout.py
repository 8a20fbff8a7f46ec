"""Time limit of a job."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any


class Timeout:
    """Raises `JobTimeout` in a job after `seconds`, a number or a function of the job; it then fails.

    An async job is cancelled. A sync one gets the exception at its next line of Python, so not while it waits in C, as
    for a socket. If it continues for `kill_after` seconds more, it is failed, the process ends when its other jobs have
    ended, and a new one starts (None: it may continue).
    """

    def __init__(self, seconds: float | Callable[[Any], float], *, kill_after: float | None = 5.0) -> None:
        self.seconds = seconds
        self.kill_after = kill_after

    def __call__(self, job: Any) -> Generator[None, None, None]:
        seconds = self.seconds(job) if callable(self.seconds) else self.seconds
        job.limit(seconds, self.kill_after)
        yield
