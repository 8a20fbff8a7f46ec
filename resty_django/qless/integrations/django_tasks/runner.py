"""Runs Django tasks as jobs in a worker."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction

from resty_django.callables import acompleted, completed
from resty_django.conf import conf

from ...clients.job import Job
from ...job_classes import Runnable
from ...middleware.retries import RetryPolicy, retry_later
from .compat import Status, TaskContext, normalize_json, signals, task_backends, time_of
from .record import TaskRecord

if TYPE_CHECKING:
    from ...outcomes import RetryLater
    from .backend import QlessBackend


class DjangoTask(Runnable):
    """A Django task. Its return value is stored as `{"value": ...}`."""

    keep_result = True

    def __init__(self, task: Any) -> None:
        self.task = task
        self.__module__ = task.func.__module__
        self.__qualname__ = task.func.__qualname__
        signature = inspect.signature(task.func)
        parameters = [*signature.parameters.values()][1 if task.takes_context else 0 :]
        self.call_signature = signature.replace(parameters=parameters)
        self.names = [parameter.name for parameter in parameters]

    @property
    def perform(self) -> Callable[[Job], Any]:  # type: ignore[override]
        return self._aperform if iscoroutinefunction(self.task.func) else self._perform

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl

    def _perform(self, job: Job) -> Any:
        run = _Run(self.task, job)
        signals.task_started.send(sender=type(run.backend), task_result=run.result)
        try:
            value = normalize_json(completed(self.task.func(*run.args, **run.record.kwargs)))
        except BaseException as error:
            outcome = run.fail(error)
            if outcome is not None:
                job.heartbeat()  # sends the errors
                raise outcome from error
            signals.task_finished.send(sender=type(run.backend), task_result=run.result)
            raise
        run.end(Status.SUCCESSFUL, value)
        signals.task_finished.send(sender=type(run.backend), task_result=run.result)
        return {"value": value}

    async def _aperform(self, job: Job) -> Any:
        run = _Run(self.task, job)
        await signals.task_started.asend(sender=type(run.backend), task_result=run.result)
        try:
            value = normalize_json(await acompleted(self.task.func(*run.args, **run.record.kwargs)))
        except BaseException as error:
            outcome = run.fail(error)
            if outcome is not None:
                await job.aheartbeat()
                raise outcome from error
            await signals.task_finished.asend(sender=type(run.backend), task_result=run.result)
            raise
        run.end(Status.SUCCESSFUL, value)
        await signals.task_finished.asend(sender=type(run.backend), task_result=run.result)
        return {"value": value}


class _Run:
    """One run of a task: its arguments, and the result object passed to signals and to the task itself."""

    def __init__(self, task: Any, job: Job) -> None:
        self.job = job
        self.record = TaskRecord.of(job.data)
        self.backend: QlessBackend = task_backends[self.record.backend]
        now = time.time()
        if self.record.started is None:
            self.record.started = now
        self.record.attempted = now
        self.record.save(job.data)
        self.result = self.backend.result_of(task, job)
        context = [TaskContext(task_result=self.result)] if task.takes_context else []
        self.args = [*context, *self.record.args]

    def fail(self, error: BaseException) -> RetryLater | None:
        """Record the error. Return the exception that reschedules the task, or None if it has failed."""
        self.record.add_error(error)
        job = self.job
        if self.backend.retries and isinstance(error, Exception) and job.retries_left > 0:
            self.record.save(job.data)
            attempt = job.original_retries - job.retries_left + 1
            return retry_later(job, RetryPolicy(self.backend.backoff, (Exception,)).delay(attempt), error)
        self.end(Status.FAILED, None)
        return None

    def end(self, status: Any, value: Any) -> None:
        """Record the end in the job and in the result object passed to the signal."""
        self.record.finished = time.time()
        self.record.save(self.job.data)
        object.__setattr__(self.result, "finished_at", time_of(self.record.finished))
        object.__setattr__(self.result, "errors", self.record.task_errors())
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "_return_value", value)
