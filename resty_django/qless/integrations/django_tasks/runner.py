"""Runs Django's tasks as jobs in a worker."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import cached_property

from resty_django.callables import acompleted, completed
from resty_django.conf import conf

from ...clients.job import Job
from ...errors import LostLock
from ...job_classes import Runnable
from ...middleware.chain import Around
from ...middleware.job import WorkerJob
from ...middleware.retries import RetryPolicy
from ...outcomes import Outcome, RetryLater, Stopping
from ...tasks.message import Parameters, expired
from .compat import Task, TaskContext, TaskResult, TaskResultStatus, normalize_json, signals, task_backends
from .results import TaskRecord, result_from_job, to_datetime
from .task import options_of


class DjangoTask(Runnable):
    """A Django task as workers see it: `job_classes.find` makes one when it finds a Django task.

    A job returns `{"value": ...}`, with the return value of the task: a job that returns None has no result.
    """

    keep_result = True

    def __init__(self, task: Task[..., Any]) -> None:
        self.task = task
        self.__module__ = task.func.__module__
        self.__qualname__ = task.func.__qualname__
        parameters = Parameters(task.func, task.module_path, task.module_path, task.takes_context, False)
        self.call_signature = parameters.signature
        self.parameter_names = parameters.names
        self.middleware = options_of(task).around(task.module_path, [ErrorRecorder(task)])

    @property
    def perform(self) -> Callable[[Job], object]:  # type: ignore[override]
        return self._aperform if iscoroutinefunction(self.task.func) else self._perform

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl

    def _perform(self, job: Job) -> dict[str, object]:
        run = _Run(self.task, job)
        args = run.begin()
        signals.task_started.send(run.sender, task_result=run.result)
        value = normalize_json(completed(self.task.func(*args, **run.record.kwargs)))
        run.end(TaskResultStatus.SUCCESSFUL, value)
        signals.task_finished.send(run.sender, task_result=run.result)
        return {"value": value}

    async def _aperform(self, job: Job) -> dict[str, object]:
        run = _Run(self.task, job)
        args = run.begin()
        await signals.task_started.asend(run.sender, task_result=run.result)
        value = normalize_json(await acompleted(self.task.func(*args, **run.record.kwargs)))
        run.end(TaskResultStatus.SUCCESSFUL, value)
        await signals.task_finished.asend(run.sender, task_result=run.result)
        return {"value": value}


class ErrorRecorder:
    """Middleware around the runs of a task: records their errors in the job, and decides on retries.

    The job itself says whether it is retried, and how often. The delay is the task's `backoff`, else the BACKOFF of the
    job's backend, else a second, doubled for each further retry.
    """

    def __init__(self, task: Task[..., Any]) -> None:
        options = options_of(task)
        self.task = task
        self.is_async = iscoroutinefunction(task.func)
        self.policy = None if options.backoff is None else options.retry_policy(task.module_path)

    def __call__(self, job: WorkerJob) -> Around:
        return self._aaround(job) if self.is_async else self._around(job)

    def _around(self, job: WorkerJob) -> Generator[None, None, None]:
        try:
            yield
        except _NOT_TASK_ERRORS:
            raise
        except BaseException as error:
            run, retry = self._failed(job, error)
            if retry is not None:
                job.heartbeat()  # sends the record
                raise retry from error
            signals.task_finished.send(run.sender, task_result=run.result)
            raise

    async def _aaround(self, job: WorkerJob) -> AsyncGenerator[None, None]:
        try:
            yield
        except _NOT_TASK_ERRORS:
            raise
        except BaseException as error:
            run, retry = self._failed(job, error)
            if retry is not None:
                await job.aheartbeat()
                raise retry from error
            await signals.task_finished.asend(run.sender, task_result=run.result)
            raise

    def _failed(self, job: WorkerJob, error: BaseException) -> tuple[_Run, RetryLater | None]:
        """Record the error. Return the exception that schedules another run, or None if the task has failed."""
        run = _Run(self.task, job)
        if run.record.finished is not None:  # raised by a receiver of `task_finished`
            raise error
        run.record.add_error(error)
        retry = self._decide(run, job, error) if isinstance(error, Exception) else None
        if retry is None:
            run.end(TaskResultStatus.FAILED, None)
        else:
            run.save()
        return run, retry

    def decide_retry(self, job: WorkerJob, error: Exception) -> RetryLater | None:
        """Return the exception that makes the worker retry the job after this error; None if the job fails.

        The worker also calls it itself, after the process of a job has died with the middleware in it.
        """
        return self._decide(_Run(self.task, job), job, error)

    def _decide(self, run: _Run, job: WorkerJob, error: Exception) -> RetryLater | None:
        backend, retried = run.backend, run.record.retried
        if not (backend and backend.retries if retried is None else retried):
            return None
        policy = self.policy or RetryPolicy(1.0 if backend is None else backend.backoff, (Exception,))
        return policy.decide_retry(job, error)


_NOT_TASK_ERRORS = (Outcome, LostLock, Stopping, GeneratorExit)
"""Ends of a run that are not errors of the task: it has chosen its end, or this worker returns the job."""


class _Run:
    """One run of a task: its record, and the `TaskResult` that signals and the task itself receive.

    `backend`: the one that enqueued the task; None if the settings no longer have it.
    """

    def __init__(self, task: Task[..., Any], job: Job) -> None:
        from .backend import QlessBackend  # which imports this module

        self.task = task
        self.job = job
        self.record = TaskRecord.from_data(job.data)
        backend = None
        with suppress(ImproperlyConfigured):
            backend = task_backends[self.record.backend]
        self.backend = backend if isinstance(backend, QlessBackend) else None
        self.sender = QlessBackend if self.backend is None else type(self.backend)

    @cached_property
    def result(self) -> TaskResult[..., Any]:
        return result_from_job(self.task, self.job)

    def begin(self) -> list[Any]:
        """Record the start, and return the positional arguments. Raises `TaskExpired`."""
        record = self.record
        self.job.data.pop("finished", None)  # of a run before an operator's retry
        record.finished = None
        if record.expires is not None and self.job.client.clock() > record.expires:
            raise expired(self.job, self.job.data)
        record.attempted = self.job.client.clock()
        if record.started is None:
            record.started = record.attempted
        self.save()
        context = [TaskContext(task_result=self.result)] if self.task.takes_context else []
        return [*context, *record.args]

    def save(self) -> None:
        """Write the record into the data of the job. The end of the run, or a heartbeat, sends it."""
        self.job.data.update(self.record.to_data())

    def end(self, status: TaskResultStatus, value: object) -> None:
        """Record the end in the job and in the `TaskResult`."""
        self.record.finished = self.job.client.clock()
        self.save()
        # the class is frozen, and Django's own backends do the same
        object.__setattr__(self.result, "finished_at", to_datetime(self.record.finished))
        object.__setattr__(self.result, "errors", self.record.task_errors())
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "_return_value", value)
