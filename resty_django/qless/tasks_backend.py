"""A backend of Django's tasks: `TASKS = {"default": {"BACKEND": "resty_django.qless.tasks_backend.QlessBackend"}}`.

With Django 6.0 and later it is one of `django.tasks`, before that of the package django-tasks. A task is a job, whose
class is the path of the function; its data has, beside `args` and `kwargs`, the alias of the backend, times and errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage, Error

from resty_django.txid import current

from .call import Steps
from .classes import find
from .clients import Client
from .default import default_client
from .errors import NotAllowed
from .job import Job
from .message import Message
from .run import timestamp
from .tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    Status,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    signals,
    time_of,
)
from .tasks_performer import DjangoTask
from .texts import encode

LOST: Final = "resty_django.qless.errors.LostLock"
"""The class of the error of a task whose workers died until it had no retries left."""
OPTIONS: Final = {"RETRIES", "BACKOFF"}


class QlessBackend(BaseTaskBackend):  # type: ignore[misc]
    """`OPTIONS`: `RETRIES`: how often a task that raised an exception is run again (0); `BACKOFF`: seconds before the
    first time, which double each time (1)."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.retries = int(self.options.get("RETRIES", 0))
        self.backoff = float(self.options.get("BACKOFF", 1.0))

    @property
    def client(self) -> Client:
        return default_client()

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        """What is wrong with it."""
        about = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("resty_django.qless"):
            yield Error(f"{about} puts jobs, but 'resty_django.qless' is not in INSTALLED_APPS.", id="resty_qless.E004")
        for unknown in sorted(self.options.keys() - OPTIONS):
            yield Error(
                f"{about} has the option {unknown!r}, which is not known.",
                hint=f"Known are {', '.join(sorted(OPTIONS))}.",
                id="resty_qless.E005",
            )

    # --- to put it ---

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Put it; gives its result to be. Raises `InvalidTask`, `TypeError` where an argument is no JSON."""
        result, message = self._message(task, args, kwargs)
        self.client.call(*message.request(self.client))
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The same for asyncio."""
        result, message = self._message(task, args, kwargs)
        await self.client.acall(*message.request(self.client))
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def _message(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Message]:
        self.validate_task(task)
        try:
            find(task.module_path)
        except NotAllowed as error:
            raise InvalidTask(str(error)) from None
        now = self.client.clock()
        result = TaskResult(
            task=task,
            id=self.client.generate_jid(),
            status=Status.READY,
            **{"enqueued_at": time_of(now), "started_at": None, "finished_at": None, "last_attempted_at": None},
            **{"args": args, "kwargs": kwargs, "backend": self.alias, "errors": [], "worker_ids": []},
        )
        data: dict[str, Any] = {"args": result.args, "kwargs": result.kwargs, "backend": self.alias, "enqueued": now}
        options: tuple[Any, ...] = ("priority", task.priority) if task.priority else ()
        if self.retries:
            options += ("retries", self.retries)
        txid = current()
        if txid is not None:
            options += ("txid", txid)
        when = None
        if task.run_after is not None:
            when = data["run_after"] = timestamp(task.run_after)
        message = Message(
            queue=task.queue_name, jid=result.id, klass=task.module_path, data=encode(data), when=when, options=options
        )
        return result, message

    # --- to look at it ---

    def get_result(self, result_id: str) -> Any:
        """What became of a task. Raises `TaskResultDoesNotExist`, also where its result is no longer kept."""
        return self.client.run(self._found(result_id))

    async def aget_result(self, result_id: str) -> Any:
        """The same for asyncio."""
        return await self.client.arun(self._found(result_id))

    def _found(self, jid: str) -> Steps[Any]:
        job = yield from self.client.jobs._get(jid)
        if not isinstance(job, Job) or not isinstance(job.data, dict) or job.data.get("backend") != self.alias:
            raise TaskResultDoesNotExist(jid)
        try:
            found = find(job.klass)
        except (NotAllowed, ImportError):
            raise TaskResultDoesNotExist(jid) from None
        if not isinstance(found, DjangoTask):
            raise TaskResultDoesNotExist(jid)
        result = self.result_of(found.task, job)
        if job.state == "complete":
            told = yield from self.client.jobs._result(jid)
            if told is None or told.result is None:
                raise TaskResultDoesNotExist(jid)
            object.__setattr__(result, "_return_value", told.result["value"])
        return result

    def result_of(self, task: Any, job: Job) -> Any:
        """The result of a task as its job tells it."""
        data, status = job.data, _STATUS.get(job.state, Status.READY)
        popped = [entry for entry in job.raw_queue_history if entry["what"] == "popped"]
        errors = [TaskError(**each) for each in data.get("errors", ())]
        finished = data.get("finished") if status in (Status.FAILED, Status.SUCCESSFUL) else None
        if status == Status.FAILED and finished is None:
            failure = job.failure
            finished = failure.get("when")
            errors.append(TaskError(exception_class_path=LOST, traceback=str(failure.get("message", ""))))
        enqueued = data.get("enqueued")
        return TaskResult(
            task=self._as_put(task, job),
            id=job.jid,
            status=status,
            enqueued_at=time_of(enqueued),
            started_at=time_of(data.get("started", _least(enqueued, popped[0]["when"]) if popped else None)),
            last_attempted_at=time_of(data.get("attempted", _least(enqueued, popped[-1]["when"]) if popped else None)),
            finished_at=time_of(finished),
            args=data["args"],
            kwargs=data["kwargs"],
            backend=self.alias,
            errors=errors,
            worker_ids=[str(entry.get("worker", "")) for entry in popped],
        )

    def _as_put(self, task: Any, job: Job) -> Any:
        changes: dict[str, Any] = {"backend": self.alias, "priority": int(job.priority)}
        if job.queue_name:
            changes["queue_name"] = job.queue_name
        if "run_after" in job.data:
            changes["run_after"] = time_of(job.data["run_after"])
        try:
            return replace(task, **changes)
        except InvalidTask:  # the settings have changed, or somebody moved the job
            return task


_STATUS: Final[dict[str, Any]] = {
    "running": Status.RUNNING,
    "failed": Status.FAILED,
    "complete": Status.SUCCESSFUL,
}


def performer(task: Any) -> DjangoTask:
    """What runs the jobs of a task of Django."""
    return DjangoTask(task)


def _least(enqueued: float | None, popped: float) -> float:
    """The history has whole seconds, and nothing starts before it was put."""
    return popped if enqueued is None else max(enqueued, popped)


__all__ = ["QlessBackend", "performer"]
