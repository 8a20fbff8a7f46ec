"""Ends of runs: the exceptions that a job or its middleware raises to choose how the job ends.

raise RetryLater(30)    # again in 30 seconds; one retry less
"""

from __future__ import annotations


class Outcome(Exception):
    """The base class of these exceptions. Not an error: middleware lets it pass, and `job_failed` is not sent."""


class RetryLater(Outcome):
    """Retry the job after `delay` seconds, using up a retry; if none is left, the job fails.

    `group` and `message` are stored as its failure.
    """

    def __init__(self, delay: float = 0, group: str | None = None, message: str | None = None) -> None:
        super().__init__(f"retry in {delay:g} s")
        self.delay = delay
        self.group = group
        self.message = message


class RequeueLater(Outcome):
    """Requeue the job with its current data, tags and priority, to run after `delay` seconds.

    Its retries are reset, or set to `retries`.
    """

    def __init__(self, delay: float = 0, retries: int | None = None) -> None:
        super().__init__(f"requeue in {delay:g} s")
        self.delay = delay
        self.retries = retries


class JobTimeout(Exception):
    """The job exceeded its `Timeout`. Jobs may catch this to clean up, and should re-raise it."""

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(f"The job took longer than {seconds:g} s." if seconds else "The job took too long.")
        self.seconds = seconds


class ProcessDied(Exception):
    """The process of a job died while the job ran: it was killed, crashed, or called `os._exit`."""


class Stopping(Exception):
    """The worker is stopping and the grace period is over: the job returns to its queue."""

    def __init__(self) -> None:
        super().__init__("The worker is stopping. The job returns to its queue.")
