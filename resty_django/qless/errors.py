"""Errors of the job queue: one type for each kind of message from the core. Pure.

A server that is down, or refuses a call, raises `StoreDown` or `StoreError` of `resty_django.redis`.
"""

from __future__ import annotations

import re
from typing import Final

CLAUSE: Final = "Background jobs need"
"""The beginning of the message for a missing package."""


class QlessError(Exception):
    """The core refused a call and changed nothing. `str()` returns its message."""


class NoSuchJob(QlessError):
    """The job does not exist: it was never put, was canceled, or has expired."""


class LostLock(QlessError):
    """The job belongs to another worker, or to none. This worker's further calls for it have no effect."""


class CannotComplete(QlessError):
    """The job is not running, or is in another queue."""


class CannotFail(QlessError):
    """The job is not running."""


class CannotRetry(QlessError):
    """The job is not running."""


class CannotTimeout(QlessError):
    """The job is not running."""


class DependencyError(QlessError):
    """Other jobs depend on the job, it would wait for itself, or it is not waiting for others."""


class GroupError(QlessError):
    """The group does not exist, exists already, or is closed."""


class GraphTooLarge(QlessError):
    """More jobs are connected than the limit allows."""


class QueueNotEmpty(QlessError):
    """The queue still has jobs, so it cannot be forgotten."""


class InvalidArgument(QlessError, ValueError):
    """The core does not accept the command or an argument, or a value is not JSON."""


class OutOfOrder(QlessError):
    """The server does not know an earlier command of the same entry of the outbox, for example because it was emptied
    in between. Sending all commands again helps."""


class UnreadableReply(QlessError):
    """The core's reply or a job's data is not the expected JSON: another program wrote these keys."""


class NotAllowed(QlessError):
    """The job's class is outside the modules from which jobs may come, or is a plain function outside of `MODULES`."""


class DuplicateTask(QlessError, TypeError):
    """Two tasks have the same name."""


class TaskFailed(QlessError):
    """The task, or one that it depends on, has failed.

    `str()` is the message with the traceback; `jid` and `group` name the failed job and the group of its failure.
    """

    def __init__(self, jid: str, group: str, message: str) -> None:
        super().__init__(message)
        self.jid = jid
        self.group = group


class TaskExpired(QlessError):
    """The task did not run, or was not retried: it waited longer than its `expires` allows."""


class ResultGone(QlessError):
    """The result of a job has expired, or was never kept."""


class MaxRetriesExceeded(QlessError):
    """`retry()` was called in the task's last permitted run."""


class MethodMissing(QlessError):
    """The job's class has no function to call."""


class MethodType(QlessError):
    """The function of the job's class is neither a static method nor a class method."""


def message_of(text: str) -> str | None:
    """Return the core's message from the text of a server error; None if the core did not raise the error."""
    match = re.search(
        r"(?:@user_script:\d+: )?user_script:\d+: (.*?)(?: script: (?:[0-9a-f]{40}, )?on @user_script:\d+\.)?$",
        text,
        re.DOTALL,
    )
    return match[1] if match is not None and not match[1].startswith("@user_script:") else None


LOCK_GONE: Final = (CannotComplete, CannotFail, CannotRetry, LostLock, NoSuchJob)
"""Errors for a job that does not (or no longer) belong to this worker. Other errors concern the arguments."""


def error_of(message: str) -> QlessError:
    """Return the error for a message of the core."""
    for pattern, kind in (  # the first pattern that is found decides
        (r": Group .* (?:does not exist|already exists|is closed)$", GroupError),
        (r"does not exist$|^Recur\(\): No recurring job ", NoSuchJob),
        (r" (?:handed out|given out|been given) to another worker: | running with another worker: ", LostLock),
        (r"^(?:Heartbeat|Progress|Take)\(\): Job .* not currently running: ", LostLock),
        (r"^Complete\(\): Job .* (?:not currently running|running in another queue): ", CannotComplete),
        (r"^Fail\(\): Job .* not currently running: ", CannotFail),
        (r"^Retry\(\): Job .* not currently running: ", CannotRetry),
        (r"^Timeout\(\): Job .* not running$", CannotTimeout),
        (r"^Once\(\): command .* follows ", OutOfOrder),
        (r"^Cancel\(\): .* is a dependency of | would wait for itself$| not in the depends state: ", DependencyError),
        (r'Arg(?:s|ument)? "|^Odd number|^Unknown command|: Unknown |Unrecognized', InvalidArgument),
        (r"must be|cannot be used without|must not be|^No value provided|schedule type", InvalidArgument),
        (r"^Put\(\): a job is five|^Must provide|^No Keys", InvalidArgument),
    ):
        if re.search(pattern, message, re.DOTALL):
            return kind(message)
    return QlessError(message)
