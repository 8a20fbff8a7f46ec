"""Exceptions with which a job, or its middleware, chooses how the job ends.

raise RetryLater(30)    # again in 30 seconds; one retry less
"""

from __future__ import annotations


class Outcome(Exception):
    """Not an error: middleware lets it pass, and the signal `job_failed` is not sent."""


class RetryLater(Outcome):
    """Let the job wait again with one retry less; if none is left it fails.

    `delay`: seconds. `group` and `message` are kept as its failure.
    """

    def __init__(self, delay: float = 0, group: str | None = None, message: str | None = None) -> None:
        super().__init__(f"again in {delay:g} s")
        self.delay = delay
        self.group = group
        self.message = message


class RequeueLater(Outcome):
    """Put the job again, with its present data, tags and priority, after `delay` seconds.

    It has all its retries again, or `retries` of them.
    """

    def __init__(self, delay: float = 0, retries: int | None = None) -> None:
        super().__init__(f"put again, for in {delay:g} s")
        self.delay = delay
        self.retries = retries


class JobTimeout(Exception):
    """The job took longer than its `Timeout` allows. Jobs may catch it to clean up, and should raise it again."""

    def __init__(self, seconds: float = 0) -> None:
        super().__init__(f"The job took longer than {seconds:g} s." if seconds else "The job took too long.")
        self.seconds = seconds


class Stopping(Exception):
    """The worker ends and the grace time is over: the job is given back to its queue."""

    def __init__(self) -> None:
        super().__init__("The worker ends; the job is given back to its queue.")
