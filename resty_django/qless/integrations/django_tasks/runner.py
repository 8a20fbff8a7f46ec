"""Runs Django's tasks as jobs in a worker."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import iscoroutinefunction

from resty_django.callables import acompleted, completed
from resty_django.conf import conf

from ...clients.job import Job
from ...job_classes import Runnable
from ...middleware.retries import RetryPolicy, retry_outcome
from .compat import Task, TaskContext, TaskResultStatus, normalize_json, signals, task_backends
from .results import TaskRecord, result_from_job, to_datetime

if TYPE_CHECKING:
    from ...outcomes import RetryLater
    from .backend import QlessBackend


class DjangoTask(Runnable):
    """A Django task as workers see it: `job_classes.find` makes one when it finds a Django task.

    A job returns `{"value": ...}`, with the return value of the task: a job that returns None has no result.
    """

    keep_result = True

    def __init__(self, task: Task[..., Any]) -> None:
        self.task = task
        self.__module__ = task.func.__module__
        self.__qualname__ = task.func.__qualname__
        signature = inspect.signature(task.func)
        parameters = [*signature.parameters.values()][1 if task.takes_context else 0 :]
        self.call_signature = signature.replace(parameters=parameters)
        self.parameter_names = [parameter.name for parameter in parameters]

    @property
    def perform(self) -> Callable[[Job], object]:  # type: ignore[override]
        return self._aperform if iscoroutinefunction(self.task.func) else self._perform

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl

    def _perform(self, job: Job) -> dict[str, object]:
        run = _Run(self.task, job)
        sender = type(run.backend)
        signals.task_started.send(sender, task_result=run.result)
        try:
            value = normalize_json(completed(self.task.func(*run.args, **run.record.kwargs)))
        except BaseException as error:
            retry = run.fail(error)
            if retry is not None:
                job.heartbeat()  # sends the record
                raise retry from error
            signals.task_finished.send(sender, task_result=run.result)
            raise
        run.end(TaskResultStatus.SUCCESSFUL, value)
        signals.task_finished.send(sender, task_result=run.result)
        return {"value": value}

    async def _aperform(self, job: Job) -> dict[str, object]:
        run = _Run(self.task, job)
        sender = type(run.backend)
        await signals.task_started.asend(sender, task_result=run.result)
        try:
            value = normalize_json(await acompleted(self.task.func(*run.args, **run.record.kwargs)))
        except BaseException as error:
            retry = run.fail(error)
            if retry is not None:
                await job.aheartbeat()
                raise retry from error
            await signals.task_finished.asend(sender, task_result=run.result)
            raise
        run.end(TaskResultStatus.SUCCESSFUL, value)
        await signals.task_finished.asend(sender, task_result=run.result)
        return {"value": value}


class _Run:
    """One run of a task: its record and arguments, and the `TaskResult` that signals and the task itself receive."""

    def __init__(self, task: Task[..., Any], job: Job) -> None:
        self.job = job
        self.record = TaskRecord.from_data(job.data)
        self.backend = cast("QlessBackend", task_backends[self.record.backend])
        self.record.attempted = time.time()
        if self.record.started is None:
            self.record.started = self.record.attempted
        self._save()
        self.result = result_from_job(task, job)
        context = [TaskContext(task_result=self.result)] if task.takes_context else []
        self.args = [*context, *self.record.args]

    def _save(self) -> None:
        """Write the record into the data of the job. The end of the run, or a heartbeat, sends it."""
        self.job.data.update(self.record.to_data())

    def fail(self, error: BaseException) -> RetryLater | None:
        """Record the error. Return the exception that schedules another run, or None if the task has failed."""
        self.record.add_error(error)
        job = self.job
        if self.backend.retries and isinstance(error, Exception) and job.retries_left > 0:
            self._save()
            attempt = job.original_retries - job.retries_left + 1
            return retry_outcome(job, RetryPolicy(self.backend.backoff, (Exception,)).delay_after(attempt), error)
        self.end(TaskResultStatus.FAILED, None)
        return None

    def end(self, status: TaskResultStatus, value: object) -> None:
        """Record the end in the job and in the `TaskResult`."""
        self.record.finished = time.time()
        self._save()
        # the class is frozen, and Django's own backends do the same
        object.__setattr__(self.result, "finished_at", to_datetime(self.record.finished))
        object.__setattr__(self.result, "errors", self.record.task_errors())
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "_return_value", value)
