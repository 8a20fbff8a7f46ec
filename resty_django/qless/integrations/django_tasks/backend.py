"""The backend: enqueues Django's tasks as jobs, and reads their results.

It implements the interface of `django.tasks` on Django 6.0 and later, and of the package django-tasks on older
versions. A task is a job whose class is the path of the function, and whose data is a `TaskRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import transaction

from resty_django.callables import is_generator_function
from resty_django.conf import conf
from resty_django.txid import current

from ...clients.client import Client
from ...clients.default import default_client
from ...clients.job import Job
from ...clients.put_options import checked_options
from ...clients.serialization import encode
from ...errors import NotAllowed
from ...job_classes import find
from ...tasks.context import timestamp
from ...tasks.message import Message, PutOptions, waits_for_commit
from .compat import (
    BaseTaskBackend,
    InvalidTask,
    Status,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    signals,
    time_of,
)
from .record import TaskRecord
from .runner import DjangoTask

LOST: Final = "resty_django.qless.errors.LostLock"
"""The error class of a task whose workers died until it had no retries left."""
OPTIONS: Final = {"RETRIES", "BACKOFF", "ON_COMMIT"}


class QlessBackend(BaseTaskBackend):  # type: ignore[misc]
    """A backend for Django's tasks.

    `OPTIONS` may contain `RETRIES`: how often a task that raised an exception runs again (default 0); `BACKOFF`:
    seconds before the first retry, doubled for each further retry (default 1); and `ON_COMMIT`: whether a task that is
    enqueued in a transaction waits for its commit (default: for the queues in the setting QLESS ON_COMMIT).
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        given = {"retries": self.options.get("RETRIES", 0), "backoff": self.options.get("BACKOFF", 1.0)}
        self.retries, self.backoff = checked_options(f"TASKS[{alias!r}] OPTIONS: ", **given).values()
        self.on_commit = self.options.get("ON_COMMIT")

    @property
    def client(self) -> Client:
        return default_client()

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        """Yield the errors in the settings of this backend."""
        setting = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("resty_django.qless"):
            yield Error(f"{setting} needs 'resty_django.qless' in INSTALLED_APPS. Add it.", id="resty_qless.E004")
        for unknown in sorted(self.options.keys() - OPTIONS):
            yield Error(
                f"{setting} has the unknown option {unknown!r}.",
                hint=f"Options are {', '.join(sorted(OPTIONS))}.",
                id="resty_qless.E005",
            )
        if self.on_commit not in (None, True, False):
            yield Error(f"{setting} ON_COMMIT must be True or False, not {self.on_commit!r}.", id="resty_qless.E005")

    def validate_task(self, task: Any) -> None:
        """Raise `InvalidTask` for a task that cannot run, and `TypeError` for a wrong `run_after`."""
        checked_options(run_after=task.run_after)
        super().validate_task(task)
        if is_generator_function(task.func):
            raise InvalidTask(f"{task.module_path} is a generator function. Remove yield from it.")

    # --- enqueuing ---

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue a task and return its future result. Raises `InvalidTask`, and `TypeError` for arguments that are not
        JSON."""
        result, message = self._message(task, args, kwargs)

        def put() -> None:
            self.client.call(*message.request(self.client))
            signals.task_enqueued.send(type(self), task_result=result)

        queues = frozenset(conf.qless.on_commit)
        if self.on_commit or (self.on_commit is None and waits_for_commit(queues, message.queue)):
            transaction.on_commit(put)
        else:
            put()
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Do the same for asyncio, at once: Django has no transactions in async code."""
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
            enqueued_at=time_of(now),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        when = None if task.run_after is None else timestamp(task.run_after)
        data: dict[str, Any] = {}
        TaskRecord(args=result.args, kwargs=result.kwargs, backend=self.alias, enqueued=now, run_after=when).save(data)
        message = Message(
            queue=task.queue_name,
            jid=result.id,
            klass=task.module_path,
            data=encode(data),
            when=when,
            options=PutOptions(priority=task.priority or None, retries=self.retries or None),
            txid=current(),
        )
        return result, message

    # --- results ---

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task. Raises `TaskResultDoesNotExist`, also for an expired result."""
        jobs = self.client.jobs
        result, job = self._without_value(jobs.get(result_id), result_id)
        return self._with_value(result, jobs.result(result_id)) if job.state == "complete" else result

    async def aget_result(self, result_id: str) -> Any:
        """Do the same for asyncio."""
        jobs = self.client.jobs
        result, job = self._without_value(await jobs.aget(result_id), result_id)
        return self._with_value(result, await jobs.aresult(result_id)) if job.state == "complete" else result

    def _without_value(self, job: Any, jid: str) -> tuple[Any, Job]:
        if not isinstance(job, Job) or not isinstance(job.data, dict) or job.data.get("backend") != self.alias:
            raise TaskResultDoesNotExist(jid)
        try:
            target = find(job.klass)
        except (NotAllowed, ImportError):
            raise TaskResultDoesNotExist(jid) from None
        if not isinstance(target, DjangoTask):
            raise TaskResultDoesNotExist(jid)
        return self.result_of(target.task, job), job

    @staticmethod
    def _with_value(result: Any, reply: Any) -> Any:
        if reply is None or reply.result is None:
            raise TaskResultDoesNotExist(result.id)
        object.__setattr__(result, "_return_value", reply.result["value"])
        return result

    def result_of(self, task: Any, job: Job) -> Any:
        """Return the result of a task, without its return value, from its job."""
        record, status = TaskRecord.of(job.data), _STATUS.get(job.state, Status.READY)
        runs = [entry for entry in job.raw_queue_history if entry["what"] == "popped"]
        errors = record.task_errors()
        finished = record.finished if status in (Status.FAILED, Status.SUCCESSFUL) else None
        if status == Status.FAILED and finished is None:
            failure = job.failure
            finished = failure.get("when")
            errors.append(TaskError(exception_class_path=LOST, traceback=str(failure.get("message", ""))))
        started, attempted = record.started, record.attempted
        if runs and started is None:
            started = _not_before(record.enqueued, runs[0]["when"])
        if runs and attempted is None:
            attempted = _not_before(record.enqueued, runs[-1]["when"])
        return TaskResult(
            task=self._as_put(task, job, record),
            id=job.jid,
            status=status,
            enqueued_at=time_of(record.enqueued),
            started_at=time_of(started),
            last_attempted_at=time_of(attempted),
            finished_at=time_of(finished),
            args=record.args,
            kwargs=record.kwargs,
            backend=self.alias,
            errors=errors,
            worker_ids=[str(entry.get("worker", "")) for entry in runs],
        )

    def _as_put(self, task: Any, job: Job, record: TaskRecord) -> Any:
        changes: dict[str, Any] = {"backend": self.alias, "priority": int(job.priority)}
        if job.queue_name:
            changes["queue_name"] = job.queue_name
        if record.run_after is not None:
            changes["run_after"] = time_of(record.run_after)
        try:
            return replace(task, **changes)
        except InvalidTask:  # the settings have changed, or the job was moved
            return task


_STATUS: Final[dict[str, Any]] = {
    "running": Status.RUNNING,
    "failed": Status.FAILED,
    "complete": Status.SUCCESSFUL,
}


def _not_before(enqueued: float | None, popped: float) -> float:
    """Correct a time from the history, which has whole seconds: no task starts before it was enqueued."""
    return popped if enqueued is None else max(enqueued, popped)
