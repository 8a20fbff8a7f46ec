"""What can go wrong with a call of the job queue: the messages of the core as types. Pure.

A server that is down, or refuses a call, is `StoreDown` or `StoreError` of `resty_django.redis`, as everywhere.
"""

from __future__ import annotations

import re
from typing import Final


class QlessError(Exception):
    """The core refused a call, and changed nothing. `str()` is its message."""


class NoSuchJob(QlessError):
    """The job does not exist: it was never put, was canceled, or has expired."""


class LostLock(QlessError):
    """The job is another worker's now, or nobody's. What this worker does with it counts no longer."""


class CannotComplete(QlessError):
    """The job is not running, or is in another queue."""


class CannotFail(QlessError):
    """The job is not running."""


class CannotRetry(QlessError):
    """The job is not running."""


class CannotTimeout(QlessError):
    """The job is not running."""


class DependencyError(QlessError):
    """Other jobs depend on a job, a job would wait for itself, or it waits for none."""


class QueueNotEmpty(QlessError):
    """A queue that is to be forgotten has jobs."""


class InvalidArgument(QlessError, ValueError):
    """A command or an argument that the core does not take; or a value that is no JSON."""


class UnreadableReply(QlessError):
    """The core, or the data of a job, is not the JSON that it should be: another program wrote these keys."""


class NotAllowed(QlessError):
    """The class of a job is in no module from which jobs may come."""


class MethodMissing(QlessError):
    """The class of a job has no function that could be called with it."""


class MethodType(QlessError):
    """The function of a job's class is neither a static method nor a class method."""


_KINDS: Final = (
    (r"does not exist$|^Recur\(\): No recurring job ", NoSuchJob),
    (r" (?:handed out|given out|been given) to another worker: | running with another worker: ", LostLock),
    (r"^(?:Heartbeat|Progress|Take)\(\): Job .* not currently running: ", LostLock),
    (r"^Complete\(\): Job .* (?:not currently running|running in another queue): ", CannotComplete),
    (r"^Fail\(\): Job .* not currently running: ", CannotFail),
    (r"^Retry\(\): Job .* not currently running: ", CannotRetry),
    (r"^Timeout\(\): Job .* not running$", CannotTimeout),
    (r"^Cancel\(\): .* is a dependency of | would wait for itself$| not in the depends state: ", DependencyError),
    (r'Arg(?:s|ument)? "|^Odd number|^Unknown command|: Unknown |Unrecognized|must be|cannot be used without', None),
    (r"^No value provided|schedule type|^Put\(\): a job is five|^Must provide|^No Keys", None),
)
_MATCHERS: Final = tuple((re.compile(pattern, re.DOTALL), kind or InvalidArgument) for pattern, kind in _KINDS)
_RAISED: Final = re.compile(
    r"(?:@user_script:\d+: )?user_script:\d+: (.*?)(?: script: (?:[0-9a-f]{40}, )?on @user_script:\d+\.)?$", re.DOTALL
)


def message_of(text: str) -> str | None:
    """What the core raised, cut out of the text of the server's error; None: the core raised nothing."""
    found = _RAISED.search(text)
    return found[1] if found is not None and not found[1].startswith("@user_script:") else None


def error_of(message: str) -> QlessError:
    """The error for a message of the core."""
    for matcher, kind in _MATCHERS:
        if matcher.search(message):
            return kind(message)
    return QlessError(message)


__all__ = [
    "CannotComplete",
    "CannotFail",
    "CannotRetry",
    "CannotTimeout",
    "DependencyError",
    "InvalidArgument",
    "LostLock",
    "MethodMissing",
    "MethodType",
    "NoSuchJob",
    "NotAllowed",
    "QlessError",
    "QueueNotEmpty",
    "UnreadableReply",
    "error_of",
    "message_of",
]
