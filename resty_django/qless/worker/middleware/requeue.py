"""Requeues after certain exceptions: a limited number, after a random delay, without using up retries."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any, Final

from ..control import Outcome, RequeueLater

COUNTS: Final = "requeues_by_exception"
"""The key in the job's data, which must be a dict, under which the requeues are counted."""


class Requeue:
    """Requeues a job that raised one of `exceptions`, up to `most` times for each of them; after that, the job fails.

    The delay is random, from `least` to `longest` seconds. `callback(error, job)` is called before each requeue.
    """

    def __init__(
        self,
        *exceptions: type[Exception],
        least: float = 0.0,
        longest: float = 30.0,
        most: int = 5,
        callback: Callable[[Exception, Any], object] | None = None,
    ) -> None:
        if not exceptions:
            raise TypeError("Requeue() needs the exceptions after which to requeue a job, such as Requeue(OSError).")
        if not 0 <= least <= longest:
            raise ValueError("Requeue() needs least= of 0 or more, and longest= that is not smaller than least=.")
        self.exceptions = exceptions
        self.least, self.longest = least, longest
        self.most = most
        self.callback = callback

    def __call__(self, job: Any) -> Generator[None, None, None]:
        try:
            yield
        except Outcome:
            raise
        except self.exceptions as error:
            kind = next(kind for kind in self.exceptions if isinstance(error, kind)).__name__
            if not isinstance(job.data, dict):
                raise
            counts = job.data.setdefault(COUNTS, {})
            if counts.get(kind, 0) >= self.most:
                raise
            counts[kind] = counts.get(kind, 0) + 1
            if self.callback is not None:
                self.callback(error, job)
            raise RequeueLater(random.uniform(self.least, self.longest)) from error  # noqa: S311 (no secret)
