"""How a worker runs the jobs of tasks of Django."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction

from resty_django.conf import conf

from .classes import Performer
from .job import Job
from .tasks_api import Status, TaskContext, TaskError, normalize_json, signals, task_backends, time_of

if TYPE_CHECKING:
    from .tasks_backend import QlessBackend


class DjangoTask(Performer):
    """Stands for a task of Django. The value of a result is kept as `{"value": ...}`."""

    keep_result = True

    def __init__(self, task: Any) -> None:
        self.task = task
        self.__module__ = task.func.__module__
        self.__qualname__ = task.func.__qualname__
        self.names = [*inspect.signature(task.func).parameters][1 if task.takes_context else 0 :]

    @property
    def perform(self) -> Callable[[Job], Any]:  # type: ignore[override]
        return self._aperform if iscoroutinefunction(self.task.func) else self._perform

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl

    def _perform(self, job: Job) -> Any:
        backend, result, args = self._begin(job)
        signals.task_started.send(sender=type(backend), task_result=result)
        try:
            value = normalize_json(self.task.func(*args, **job.data["kwargs"]))
        except BaseException as error:
            if self._again(backend, job, error):
                job.heartbeat()  # which sends the errors
                raise self._later(backend, job, error) from error
            _end(result, job, None)
            signals.task_finished.send(sender=type(backend), task_result=result)
            raise
        _end(result, job, value)
        signals.task_finished.send(sender=type(backend), task_result=result)
        return {"value": value}

    async def _aperform(self, job: Job) -> Any:
        backend, result, args = self._begin(job)
        await signals.task_started.asend(sender=type(backend), task_result=result)
        try:
            value = normalize_json(await self.task.func(*args, **job.data["kwargs"]))
        except BaseException as error:
            if self._again(backend, job, error):
                await job.aheartbeat()
                raise self._later(backend, job, error) from error
            _end(result, job, None)
            await signals.task_finished.asend(sender=type(backend), task_result=result)
            raise
        _end(result, job, value)
        await signals.task_finished.asend(sender=type(backend), task_result=result)
        return {"value": value}

    def _begin(self, job: Job) -> tuple[QlessBackend, Any, list[Any]]:
        backend = task_backends[job.data["backend"]]
        now = time.time()
        job.data.setdefault("started", now)
        job.data["attempted"] = now
        result = backend.result_of(self.task, job)
        args = [*job.data["args"]]
        return backend, result, [TaskContext(task_result=result), *args] if self.task.takes_context else args

    def _again(self, backend: QlessBackend, job: Job, error: BaseException) -> bool:
        """Note the error; whether the task is to be run again."""
        kind = type(error)
        noted = {
            "exception_class_path": f"{kind.__module__}.{kind.__qualname__}",
            "traceback": "".join(format_exception(error)),
        }
        job.data.setdefault("errors", []).append(noted)
        return bool(backend.retries) and isinstance(error, Exception) and job.retries_left > 0

    def _later(self, backend: QlessBackend, job: Job, error: BaseException) -> Exception:
        from .backoff import Backoff
        from .worker.outcomes import RetryLater
        from .worker.perform import message_of

        attempt = job.original_retries - job.retries_left + 1
        pause = Backoff(backend.backoff, (Exception,)).pause(attempt)
        return RetryLater(pause, f"{job.queue_name}-{type(error).__name__}", message_of(error))


def _end(result: Any, job: Job, value: Any) -> None:
    """Note how it ended, in the job and in the result that the signal tells."""
    job.data["finished"] = time.time()
    errors = [TaskError(**each) for each in job.data.get("errors", ())]
    failed = len(errors) > len(result.errors)
    object.__setattr__(result, "finished_at", time_of(job.data["finished"]))
    object.__setattr__(result, "errors", errors)
    object.__setattr__(result, "status", Status.FAILED if failed else Status.SUCCESSFUL)
    object.__setattr__(result, "_return_value", value)


__all__ = ["DjangoTask"]
