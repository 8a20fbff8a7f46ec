"""When a task that raised an exception is run again."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any, Final

DOUBLING: Final = 2.0
FUZZ: Final = 0.1
"""The share by which a pause is longer or shorter at random, so that what failed together does not come back so."""
LONGEST: Final = 86_400.0


class Backoff:
    """A middleware. `pauses`: the seconds before the first retry, which double each time; or those before each, of
    which the last one stays. `exceptions`: after which."""

    def __init__(self, pauses: float | Sequence[float], exceptions: tuple[type[Exception], ...]) -> None:
        many = [pauses] if isinstance(pauses, int | float) else [*pauses]
        if not many or any(each < 0 for each in many):
            raise ValueError("backoff= is seconds, at least 0, or a list of such.")
        self._doubles = isinstance(pauses, int | float)
        self._pauses = many
        self.exceptions = exceptions

    def pause(self, attempt: int) -> float:
        """Seconds after run number `attempt`, which is 1 for the first."""
        if not self._doubles:
            return self._pauses[min(attempt, len(self._pauses)) - 1]
        pause = self._pauses[0] * DOUBLING ** min(attempt - 1, 60)
        return min(pause * (1 + random.uniform(-FUZZ, FUZZ)), LONGEST)  # noqa: S311 (no secret)

    def wants(self, error: BaseException) -> bool:
        """Whether a task that raised this is to be run again, if it has retries left."""
        from .errors import LostLock
        from .message import ResultGone, TaskExpired
        from .run import MaxRetriesExceeded
        from .worker.outcomes import Outcome, Stopping

        final = (LostLock, MaxRetriesExceeded, Outcome, ResultGone, Stopping, TaskExpired)
        return isinstance(error, self.exceptions) and not isinstance(error, final)

    def __call__(self, job: Any) -> Generator[None, None, None]:
        from .worker.outcomes import RetryLater
        from .worker.perform import message_of

        try:
            yield
        except Exception as error:
            if job.retries_left <= 0 or not self.wants(error):
                raise
            group = f"{job.queue_name}-{type(error).__name__}"
            raise RetryLater(self.pause(job.attempt), group, message_of(error)) from error


__all__ = ["Backoff"]
