"""One job from its start to what is told to the server about its end.

What the function returns is kept as the job's result where the job's class asks for that (`keep_result`).
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any, Final

from resty_django.redis import StoreError

from .. import texts
from ..call import Steps
from ..errors import LostLock, MethodMissing, MethodType, QlessError
from . import chain
from .outcomes import Outcome, RequeueLater, RetryLater, Stopping
from .running import BY_ITSELF, COMPLETED, FAILED, LOST, RETRIED, RETURNED, Command, Entry, Running
from .signals import job_failed

log = logging.getLogger("resty_django.qless.worker")

LONGEST_MESSAGE: Final = 10_000
"""Characters of a failure's message."""
_KINDS: Final[dict[type[BaseException], str]] = {MethodMissing: "method-missing", MethodType: "method-type"}
"""What the groups of failures say that have no name of an exception."""


def run(running: Running) -> None:
    """Run a sync job with its middleware."""
    job, entry = running.job, running.entry
    try:
        result = chain.run(entry.middleware, job, entry.function)
    except BaseException as error:
        judge(running, error)
    else:
        judge(running, None, result)
    if job.has_hooks():
        ending = _with_hooks(running)
        if ending is not None:
            try:
                job.client.run(ending)
            except Exception as error:
                _hook_failed(running, error)


async def arun(running: Running) -> None:
    """Run an async job with its middleware."""
    job, entry = running.job, running.entry

    async def function(job: Any) -> Any:
        try:
            return await entry.function(job)
        except asyncio.CancelledError:
            if running.cause is None:
                raise
            raise running.cause from None

    try:
        result = await chain.arun(entry.middleware, job, function)
    except BaseException as error:
        judge(running, error)
    else:
        judge(running, None, result)
    if job.has_hooks():
        ending = _with_hooks(running)
        if ending is not None:
            try:
                await job.client.arun(ending)
            except Exception as error:
                _hook_failed(running, error)


def _with_hooks(running: Running) -> Steps[Any] | None:
    """The steps that end a job which has hooks: not the desk, but the place of the job takes them."""
    command = running.command
    if command is None or command[0] not in ("complete", "fail", "retry", "requeue"):
        return None
    return running.job._changing(command[0], command)  # type: ignore[no-any-return]


def _hook_failed(running: Running, error: Exception) -> None:
    """A hook raised, or the server refused: then the desk tells how the job ended, a second time at most."""
    job = running.job
    if job.state_changed or isinstance(error, QlessError):
        log.warning("job %s: after its end: %s: %s", running.jid, type(error).__name__, error)
    elif not isinstance(error, StoreError):
        running.end, running.command = _failure(running, error)


def judge(running: Running, error: BaseException | None, result: Any = None) -> None:
    """How it ended: sets `end`, `command` and `judged`. Never raises."""
    try:
        running.end, running.command = _verdict(running, error, result)
    except Exception as problem:  # its data or its result is no JSON
        running.end, running.command = _failure(running, problem)
    running.judged = True


def _verdict(running: Running, error: BaseException | None, result: Any) -> tuple[str, Command | None]:
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
        command: Command = ("retry", running.jid, running.queue, job.worker_name, error.delay)
        if error.group is not None:
            command += (error.group, (error.message or "")[:LONGEST_MESSAGE])
        return RETRIED, command
    if isinstance(error, RequeueLater):
        return RETRIED, requeue(running, error)
    if cause is not None and type(error) is type(cause):
        error = cause  # raised in a thread, which can be given the class alone
    return _failure(running, error)


def _complete(running: Running, result: Any) -> Command:
    job = running.job
    command: Command = ("complete", running.jid, job.worker_name, running.queue, job.raw_data)
    if running.entry.keep_result:
        command += ("result", texts.encode(result))
        if running.entry.result_ttl is not None:
            command += ("ttl", running.entry.result_ttl)
    return command


def requeue(running: Running, outcome: RequeueLater) -> Command:
    """The job as a new put of itself."""
    job = running.job
    retries = job.original_retries if outcome.retries is None else outcome.retries
    return (
        *("requeue", job.worker_name, running.queue, running.jid, job.klass, job.raw_data, outcome.delay),
        *("priority", job.priority, "tags", texts.encode(job.tags), "retries", retries),
    )


def _failure(running: Running, error: BaseException) -> tuple[str, Command | None]:
    kind = _KINDS.get(type(error), type(error).__name__)
    group = f"{running.queue}-{kind}"
    job_failed.send_robust(sender=running.entry.function, job=running.job, error=error, group=group)
    log.warning("job %s (%s) failed: %s: %s", running.jid, running.job.klass, kind, error)
    return FAILED, fail(running, group, message_of(error))


def fail(running: Running, group: str, message: str) -> Command:
    """The job fails, with its present data where that is JSON."""
    command: Command = ("fail", running.jid, running.job.worker_name, group, message[:LONGEST_MESSAGE])
    try:
        return (*command, running.job.raw_data)
    except Exception:  # the failure is told without it
        return command


def message_of(error: BaseException) -> str:
    """The text of an exception and the way to it; of a long way the end."""
    text = f"{type(error).__name__}: {error}"[: LONGEST_MESSAGE // 2]
    way = "".join(traceback.format_exception(error))
    return f"{text}\n\n{way[-(LONGEST_MESSAGE - len(text) - 2) :]}"


__all__ = ["LONGEST_MESSAGE", "Entry", "Outcome", "arun", "fail", "judge", "message_of", "requeue", "run"]
