"""The backend: enqueues Django's tasks as jobs, and looks up their results."""

from __future__ import annotations

from typing import Any, ParamSpec, TypeVar

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
from ...clients.recurring import RecurringJob
from ...clients.replies import JobResult
from ...clients.serialization import encode
from ...errors import NotAllowed
from ...job_classes import find
from ...tasks.context import timestamp
from ...tasks.message import PutOptions, TaskMessage, waits_for_commit
from .compat import BaseTaskBackend, InvalidTask, Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus, signals
from .results import TaskRecord, task_result, to_datetime
from .runner import DjangoTask

P = ParamSpec("P")
R = TypeVar("R")


class QlessBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs, which the workers of `manage.py runqless` run.

        TASKS = {
            "default": {
                "BACKEND": "resty_django.qless.integrations.django_tasks.QlessBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {"RETRIES": 3, "BACKOFF": 2},
            }
        }

    The class of a job is the path of the task's function, its data is a `TaskRecord`, and the ID of the result is its
    jid.

    `OPTIONS` may contain:

    - `RETRIES`: how often a task that raised an exception runs again (default 0).
    - `BACKOFF`: seconds before the first retry, doubled for each further retry (default 1).
    - `ON_COMMIT`: whether a task that is enqueued in a transaction waits for its commit (default: for the queues in the
      setting QLESS ON_COMMIT).
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    option_names = frozenset(("RETRIES", "BACKOFF", "ON_COMMIT"))
    """The keys that `OPTIONS` may contain."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = checked_options(
            f"TASKS[{alias!r}] OPTIONS: ",
            retries=self.options.get("RETRIES", 0),
            backoff=self.options.get("BACKOFF", 1.0),
        )
        self.retries: int = options["retries"]
        self.backoff: float = options["backoff"]
        self.on_commit: bool | None = self.options.get("ON_COMMIT")

    @property
    def client(self) -> Client:
        return default_client()

    def check(self, **kwargs: object) -> list[CheckMessage]:
        """Return the errors in the settings of this backend."""
        errors: list[CheckMessage] = []
        setting = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("resty_django.qless"):
            text = f"{setting} needs 'resty_django.qless' in INSTALLED_APPS. Add it."
            errors.append(Error(text, id="resty_qless.E004"))
        for unknown in sorted(self.options.keys() - self.option_names):
            hint = f"Options are {', '.join(sorted(self.option_names))}."
            errors.append(Error(f"{setting} has the unknown option {unknown!r}.", hint=hint, id="resty_qless.E005"))
        if self.on_commit not in (None, True, False):
            text = f"{setting} ON_COMMIT must be True or False, not {self.on_commit!r}."
            errors.append(Error(text, id="resty_qless.E005"))
        return errors

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise `InvalidTask` for a task that cannot run, and `TypeError` for a wrong `run_after`."""
        checked_options(run_after=task.run_after)
        super().validate_task(task)
        if is_generator_function(task.func):
            raise InvalidTask(f"{task.module_path} is a generator function. Remove yield from it.")

    # --- enqueuing ---

    def enqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Enqueue a task, and return its future result.

        Raises `InvalidTask`, and `TypeError` for arguments that are not JSON.
        """
        now = self.client.clock()
        result = self._new_result(task, args, kwargs, now)
        message = self._message(result, now)

        def put() -> None:
            self.client.call(*message.request(self.client))
            signals.task_enqueued.send(type(self), task_result=result)

        if self._waits_for_commit(task.queue_name):
            transaction.on_commit(put)
        else:
            put()
        return result

    async def aenqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Do the same for asyncio, at once: Django has no transactions in async code."""
        now = self.client.clock()
        result = self._new_result(task, args, kwargs, now)
        await self.client.acall(*self._message(result, now).request(self.client))
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def _waits_for_commit(self, queue: str) -> bool:
        if self.on_commit is None:
            return waits_for_commit(frozenset(conf.qless.on_commit), queue)
        return self.on_commit

    def _new_result(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any], now: float) -> TaskResult[P, R]:
        """Return the result of a task that is enqueued now. Raises `InvalidTask` if workers would refuse its job."""
        self.validate_task(task)
        try:
            find(task.module_path)
        except NotAllowed as error:
            raise InvalidTask(str(error)) from None
        return TaskResult(
            task=task,
            id=self.client.generate_jid(),
            status=TaskResultStatus.READY,
            enqueued_at=to_datetime(now),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _message(self, result: TaskResult[P, R], now: float) -> TaskMessage:
        """Return the job of a new result, ready to be sent."""
        task = result.task
        run_after = None if task.run_after is None else timestamp(task.run_after)
        record = TaskRecord(
            args=result.args, kwargs=result.kwargs, backend=self.alias, enqueued=now, run_after=run_after
        )
        return TaskMessage(
            queue=task.queue_name,
            jid=result.id,
            klass=task.module_path,
            data=encode(record.to_data()),
            when=run_after,
            options=PutOptions(priority=task.priority or None, retries=self.retries or None),
            txid=current(),
        )

    # --- results ---

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the result of a task. Raises `TaskResultDoesNotExist`, also for an expired result."""
        jobs = self.client.jobs
        job = jobs.get(result_id)
        stored = jobs.result(result_id) if job is not None and job.state == "complete" else None
        return self._result(result_id, job, stored)

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """Do the same for asyncio."""
        jobs = self.client.jobs
        job = await jobs.aget(result_id)
        stored = await jobs.aresult(result_id) if job is not None and job.state == "complete" else None
        return self._result(result_id, job, stored)

    def _result(self, result_id: str, job: Job | RecurringJob | None, stored: JobResult | None) -> TaskResult[..., Any]:
        """Return the result of a job. `stored`: its return value, if it is complete."""
        if not isinstance(job, Job) or (task := self._task_of(job)) is None:
            raise TaskResultDoesNotExist(result_id)
        result = task_result(task, job)
        if job.state == "complete":
            if stored is None or stored.result is None:
                raise TaskResultDoesNotExist(result_id)
            object.__setattr__(result, "_return_value", stored.result["value"])
        return result

    def _task_of(self, job: Job) -> Task[..., Any] | None:
        """Return the task of a job that this backend has enqueued; None for other jobs."""
        if not isinstance(job.data, dict) or job.data.get("backend") != self.alias:
            return None
        try:
            target = find(job.klass)
        except (NotAllowed, ImportError):
            return None
        return target.task if isinstance(target, DjangoTask) else None
