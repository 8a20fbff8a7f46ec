"""Execution of one job: runs the function in its middleware and creates the command that ends the job.

The function's return value is stored as the job's result if the job's class sets `keep_result`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from django.db import close_old_connections

from resty_django.callables import acompleted, completed, original
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients import serialization
from ..clients.transport import Steps
from ..errors import LostLock, MethodMissing, MethodType, QlessError
from ..middleware import chain
from ..middleware.always import bound_to
from ..middleware.job import WorkerJob
from ..outcomes import ProcessDied, RequeueLater, RetryLater, Stopping
from ..outcomes.error_text import MAX_MESSAGE_CHARS, group_of, message_of, name_of, text_of
from ..signals import job_failed
from .commands import CompleteJob, FailJob, RequeueJob, RetryJob, plain
from .forks import exit_fork
from .running_job import MAX_REFUSALS, RunningJob

log = logger("resty_django.qless.worker")


def run(running: RunningJob) -> None:
    """Run a sync job with its middleware. A job that cannot be run fails."""
    job, handler, process = running.job, running.handler, os.getpid()
    if handler.refusal is not None:
        return finish(running, handler.refusal)

    def function(job: WorkerJob) -> object:
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
    if job._hooks:
        job.client.run(_report_with_hooks(running))


async def arun(running: RunningJob) -> None:
    """Run an async job with its middleware."""
    job, handler, process = running.job, running.handler, os.getpid()

    async def function(job: WorkerJob) -> object:
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
    if job._hooks:
        await job.client.arun(_report_with_hooks(running))


def _report_with_hooks(running: RunningJob) -> Steps[None]:
    """Report the end of a job that has hooks, here, because the hooks run where the job ran.

    If an error occurs before the server has confirmed the end, the worker loop reports it.
    """
    job, command = running.job, running.command
    if command is None:
        return
    try:
        yield from job._changing(command.name, command.request)
        running.command = None
    except Exception as error:
        if job.state_changed or isinstance(error, QlessError):
            log.warning("error after the end of job %s: %s", running.jid, text_of(error)[:MAX_MESSAGE_CHARS])
        elif not isinstance(error, StoreError):
            fail_with(running, error)


# --- how a job ends ---


def finish(running: RunningJob, error: BaseException | None, result: object = None) -> None:
    """Record the end of a job that returned `result` or raised `error`.

    Never raises, whatever objects the job leaves behind.
    """
    try:
        _finish(running, error, result)
    except BaseException as problem:  # the data or the result is not JSON
        fail_with(running, problem)


def _finish(running: RunningJob, error: BaseException | None, result: object) -> None:
    job, cause = running.job, running.cause
    if isinstance(cause, LostLock) or isinstance(error, LostLock):
        running.set_end("lost")
    elif isinstance(cause, Stopping) and error is not None:
        running.set_end("returned")
    elif job.state_changed:
        running.set_end("by itself")
    elif error is None:
        _complete(running, result)
    elif isinstance(error, RetryLater):
        _retry(running, error)
    elif isinstance(error, RequeueLater):
        _requeue(running, error)
    elif cause is not None and type(error) is type(cause):
        _fail(running, cause)  # raised in a thread, where only the class can be raised
    else:
        _fail(running, error)


def _complete(running: RunningJob, result: object) -> None:
    job, handler = running.job, running.handler
    command = CompleteJob(jid=running.jid, worker=job.worker_name, queue=running.queue, data=plain(job.raw_data))
    if handler.keep_result:
        command.result = plain(serialization.encode(result, "result"))
        command.result_ttl = None if handler.result_ttl is None else plain(handler.result_ttl)
    running.set_end("completed", command)


def _retry(running: RunningJob, outcome: RetryLater) -> None:
    job, cause = running.job, outcome.__cause__
    if cause is not None and job.retries_left > 0:
        with bound_to(job):
            reason = text_of(cause)[:MAX_MESSAGE_CHARS]
            log.warning(
                "job %s (%s) failed and runs again in %.1f s: %s", running.jid, job.klass, outcome.delay, reason
            )
    command = RetryJob(jid=running.jid, worker=job.worker_name, queue=running.queue, delay=plain(outcome.delay))
    if outcome.group is not None:
        command.group = group_of(outcome.group)
        command.message = serialization.readable(outcome.message or "", MAX_MESSAGE_CHARS)
    running.set_end("retried", command)


def _requeue(running: RunningJob, outcome: RequeueLater) -> None:
    job = running.job
    command = RequeueJob(
        jid=running.jid,
        worker=job.worker_name,
        queue=running.queue,
        klass=job.klass,
        data=plain(job.raw_data),
        delay=plain(outcome.delay),
        priority=plain(job.priority),
        tags=serialization.encode(job.tags),
        retries=job.original_retries if outcome.retries is None else plain(outcome.retries),
    )
    running.set_end("retried", command)


def _fail(running: RunningJob, error: BaseException) -> None:
    command = _failure(running, error)
    if command.data is not None:
        plain(command.data)
    running.set_end("failed", command)


def fail_with(running: RunningJob, error: BaseException) -> None:
    """Record that the job failed with this error, also if it has ended otherwise. Never raises."""
    try:
        command = _failure(running, error)
    except BaseException as problem:
        log.error("job %s failed, and its error cannot be shown: %s", running.jid, name_of(problem))
        command = FailJob(
            jid=running.jid,
            worker=running.job.worker_name,
            group=f"{running.queue}-Exception",
            message="The job failed, but its exception or its data could not be converted to text.",
        )
    running.set_end("failed", command)


def _failure(running: RunningJob, error: BaseException) -> FailJob:
    """Log the failure, send the signal `job_failed`, and return the command."""
    job, function = running.job, running.handler.function
    kinds: dict[type[BaseException], str] = {MethodMissing: "method-missing", MethodType: "method-type"}
    kind = kinds.get(type(error)) or name_of(error)
    group = group_of(f"{running.queue}-{kind}")
    if job_failed.has_listeners(function):
        close_old_connections()  # of this thread, which may be one that runs no jobs
        job_failed.send_robust(sender=function, job=job, error=error, group=group)
        close_old_connections()
    with bound_to(job):
        log.warning("job %s (%s) failed: %s", running.jid, job.klass, text_of(error)[:MAX_MESSAGE_CHARS])
    command = FailJob(
        jid=running.jid,
        worker=job.worker_name,
        group=group,
        message=serialization.readable(message_of(error), MAX_MESSAGE_CHARS),
    )
    with contextlib.suppress(Exception):  # data that are not JSON: the failure is sent without them
        command.data = job.raw_data
    return command


def finish_dead(running: RunningJob, error: Exception) -> None:
    """Record the end of a job whose process is dead. `error`: why, `JobTimeout` or `ProcessDied`.

    Its middleware has died with it, so this calls the method `decide_retry` of those that have one. If none of them
    decides, the job is retried after `ProcessDied`, as after the loss of a worker, and fails after `JobTimeout`. The
    server keeps its copy of the data.
    """
    later: RetryLater | None = None
    for around in reversed(running.handler.middleware):
        decide_retry = getattr(around, "decide_retry", None)
        if later is None and callable(decide_retry):
            try:
                later = decide_retry(running.job, error)
            except Exception as problem:
                log.warning("a retry policy of job %s failed: %s", running.jid, text_of(problem)[:MAX_MESSAGE_CHARS])
    if later is None and isinstance(error, ProcessDied) and running.job.retries_left > 0:
        later = RetryLater(1.0, f"{running.queue}-{name_of(error)}", message_of(error))
    if later is not None:
        later.__cause__ = error
    finish(running, later or error)
    if isinstance(running.command, FailJob):
        running.command.data = None


def refuse(running: RunningJob, error: Exception) -> bool:
    """Replace a command that the server refused: fail the job with `error`, and if that is refused, without its data.

    Return False if the server refused that as well and no command is left.
    """
    running.refusals += 1
    command = running.command
    if not isinstance(command, FailJob):
        fail_with(running, error)
    elif command.data is None or running.refusals > MAX_REFUSALS:
        running.command = None
    else:
        command.data = None
    return running.command is not None
