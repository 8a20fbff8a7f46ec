"""Execution of one job: runs the function in its middleware and creates the command that ends the job.

The function's return value is stored as the job's result if the job's class sets `keep_result`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final

from django.db import close_old_connections

from resty_django.callables import acompleted, completed, original
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients import serialization
from ..clients.transport import Request
from ..errors import InvalidArgument, LostLock, MethodMissing, MethodType, QlessError
from ..middleware import chain
from ..middleware.always import bound_to
from ..outcomes import ProcessDied, RequeueLater, RetryLater, Stopping
from ..outcomes.error_text import LONGEST_MESSAGE, group_of, message_of, name_of, text_of
from ..signals import job_failed
from .commands import CompleteJob, EndCommand, FailJob, RequeueJob, RetryJob
from .forks import exit_fork
from .running_job import BY_ITSELF, COMPLETED, FAILED, LOST, RETRIED, RETURNED, RunningJob

log = logger("resty_django.qless.worker")

MAX_ARGUMENT: Final = 512 * 1024 * 1024
"""Maximum bytes of one argument. If it is longer, a Redis server closes the connection without a reply."""
MAX_REFUSALS: Final = 3
DEATH_PAUSE: Final = 1.0
"""Seconds until a job is retried whose process died, if its middleware does not set them."""
_KINDS: Final[dict[type[BaseException], str]] = {MethodMissing: "method-missing", MethodType: "method-type"}
"""Parts of failure group names that replace the exception's name."""


def run(running: RunningJob) -> None:
    """Run a sync job with its middleware."""
    job, handler, process = running.job, running.handler, os.getpid()

    def function(job: Any) -> Any:
        try:
            return completed(handler.function(job))
        finally:
            if os.getpid() != process:  # a fork that has come back from the job
                exit_fork()

    try:
        result = chain.run(handler.middleware, job, function)
    except BaseException as error:
        finish(running, error)
    else:
        finish(running, None, result)
    command = running.command
    if job._hooks and command is not None:  # the hooks run where the job ran, not in the worker loop
        try:
            job.client.run(job._changing(command.name, command.request))
            running.command = None
        except Exception as error:
            _on_hook_error(running, error)


async def arun(running: RunningJob) -> None:
    """Run an async job with its middleware."""
    job, handler, process = running.job, running.handler, os.getpid()

    async def function(job: Any) -> Any:
        try:
            return await acompleted(handler.function(job))
        except asyncio.CancelledError:
            if running.cause is None:
                raise
            raise running.cause from None
        finally:
            if os.getpid() != process:
                exit_fork()

    try:
        result = await chain.arun(handler.middleware, job, function)
    except BaseException as error:
        finish(running, original(error))
    else:
        finish(running, None, result)
    command = running.command
    if job._hooks and command is not None:  # the hooks run where the job ran, not in the worker loop
        try:
            await job.client.arun(job._changing(command.name, command.request))
            running.command = None
        except Exception as error:
            _on_hook_error(running, error)


def _on_hook_error(running: RunningJob, error: Exception) -> None:
    """Handle an error of a hook or of the command. If nothing was sent yet, the worker loop sends the command."""
    job = running.job
    if job.state_changed or isinstance(error, QlessError):
        log.warning("error after the end of job %s: %s", running.jid, text_of(error)[:LONGEST_MESSAGE])
    elif not isinstance(error, StoreError):
        fail_with(running, error)


def finish(running: RunningJob, error: BaseException | None, result: Any = None) -> None:
    """Set `command` and `end` of a job that returned `result` or raised `error`.

    Never raises, whatever objects the job leaves behind.
    """
    try:
        end, command = _result_command(running, error, result)
        if command is not None:
            command.request = _sendable(command.request)
        running.command, running.end = command, end
    except BaseException as problem:  # the data or the result is not JSON
        fail_with(running, problem)


def fail_with(running: RunningJob, error: BaseException) -> None:
    """Set `command` and `end` so that the job fails, overriding `finish`. Never raises."""
    try:
        end, command = _failure(running, error)
    except BaseException as problem:
        log.error("job %s failed, and its error cannot be shown: %s", running.jid, name_of(problem))
        text = "The job failed, but its exception or its data could not be converted to text."
        end, command = FAILED, _bare_failure(running, text)
    running.command, running.end = command, end


def finish_dead(running: RunningJob, error: Exception) -> None:
    """Set `command` and `end` of a job whose process is dead. `error`: why, `JobTimeout` or `ProcessDied`.

    Its middleware has died with it, so only the part is asked that decides on retries: the method `next_run`. After
    `ProcessDied` a job is retried anyway, as after the loss of a worker. The server's copy of the data stays.
    """
    later: RetryLater | None = None
    for around in reversed(running.handler.middleware):
        next_run = getattr(around, "next_run", None)
        if later is None and callable(next_run):
            try:
                later = next_run(running.job, error)
            except Exception as problem:
                log.warning("a retry policy of job %s failed: %s", running.jid, text_of(problem)[:LONGEST_MESSAGE])
    if later is None and isinstance(error, ProcessDied) and running.job.retries_left > 0:
        later = RetryLater(DEATH_PAUSE, f"{running.queue}-{name_of(error)}", message_of(error))
    if later is not None:
        later.__cause__ = error
    finish(running, later or error)
    if isinstance(running.command, FailJob):
        running.command.drop_data()


def refuse(running: RunningJob, error: Exception) -> bool:
    """Replace a command that the server refused: fail the job with `error`, and if that is refused, without its data.

    Return False if the server refused that as well and no command is left.
    """
    running.refused += 1
    command = running.command
    if not isinstance(command, FailJob):
        fail_with(running, error)
    elif running.refused > MAX_REFUSALS or not command.drop_data():
        running.command = None
    return running.command is not None


def _result_command(running: RunningJob, error: BaseException | None, result: Any) -> tuple[str, EndCommand | None]:
    job, cause = running.job, running.cause
    if isinstance(cause, LostLock) or isinstance(error, LostLock):
        return LOST, None
    if isinstance(cause, Stopping) and error is not None:
        return RETURNED, None
    if job.state_changed:
        return BY_ITSELF, None
    if error is None:
        return COMPLETED, _complete(running, result)
    if isinstance(error, RetryLater):
        _log_retry(running, error)
        failure: tuple[str, ...] = ()
        if error.group is not None:
            failure = (group_of(error.group), serialization.readable(error.message or "", LONGEST_MESSAGE))
        return RETRIED, RetryJob(running.jid, running.queue, job.worker_name, error.delay, *failure)
    if isinstance(error, RequeueLater):
        return RETRIED, _requeue(running, error)
    if cause is not None and type(error) is type(cause):
        error = cause  # raised in a thread, where only the class can be raised
    return _failure(running, error)


def _complete(running: RunningJob, result: Any) -> CompleteJob:
    job, handler = running.job, running.handler
    options: list[Any] = []
    if handler.keep_result:
        options += ["result", serialization.encode(result, "result")]
        if handler.result_ttl is not None:
            options += ["ttl", handler.result_ttl]
    return CompleteJob(running.jid, job.worker_name, running.queue, job.raw_data, *options)


def _requeue(running: RunningJob, outcome: RequeueLater) -> RequeueJob:
    job = running.job
    retries = job.original_retries if outcome.retries is None else outcome.retries
    return RequeueJob(
        *(running.jid, running.queue, job.worker_name, job.klass, job.raw_data, outcome.delay),
        *("priority", job.priority, "tags", serialization.encode(job.tags), "retries", retries),
    )


def _log_retry(running: RunningJob, outcome: RetryLater) -> None:
    """Log that a job runs again after an error, with the txid of the job, as its own lines have it."""
    job, cause = running.job, outcome.__cause__
    if cause is None or job.retries_left <= 0:
        return
    with bound_to(job):
        reason = text_of(cause)[:LONGEST_MESSAGE]
        log.warning("job %s (%s) failed and runs again in %.1f s: %s", running.jid, job.klass, outcome.delay, reason)


def _failure(running: RunningJob, error: BaseException) -> tuple[str, FailJob]:
    kind = _KINDS.get(type(error)) or name_of(error)
    group = group_of(f"{running.queue}-{kind}")
    if job_failed.has_listeners(running.handler.function):
        close_old_connections()  # of this thread, which may be one that runs no jobs
        job_failed.send_robust(sender=running.handler.function, job=running.job, error=error, group=group)
        close_old_connections()
    with bound_to(running.job):
        log.warning("job %s (%s) failed: %s", running.jid, running.job.klass, text_of(error)[:LONGEST_MESSAGE])
    message = serialization.readable(message_of(error), LONGEST_MESSAGE)
    data: tuple[Any, ...] = ()
    with contextlib.suppress(Exception):  # data that are not JSON: the failure is sent without them
        data = (running.job.raw_data,)
    return FAILED, FailJob(running.jid, running.job.worker_name, group, message, *data)


def _bare_failure(running: RunningJob, text: str) -> FailJob:
    return FailJob(running.jid, running.job.worker_name, f"{running.queue}-Exception", text)


def _sendable(request: Request) -> Request:
    """Return the request with plain strings and numbers only. Raises `InvalidArgument`."""
    for argument in request:
        kind = type(argument)
        if not (((kind is str or kind is bytes) and len(argument) <= MAX_ARGUMENT) or kind is int or kind is float):
            return tuple(map(_plain, request))
    return request


def _plain(argument: Any) -> str | bytes | int | float:
    kind = type(argument)
    if kind in (str, bytes, int, float):
        if kind in (str, bytes) and len(argument) > MAX_ARGUMENT:
            raise InvalidArgument(
                f"The job's data or result has {len(argument)} bytes. The server accepts at most {MAX_ARGUMENT}."
            )
        return argument  # type: ignore[no-any-return]
    if isinstance(argument, str):
        return _plain(str.__str__(argument))
    if isinstance(argument, int) and kind is not bool:
        return int.__int__(argument)
    if isinstance(argument, float):
        return float.__float__(argument)
    raise InvalidArgument(
        f"The job ended with a value of the type {kind.__module__}.{kind.__qualname__}. Use a string or a number."
    )
