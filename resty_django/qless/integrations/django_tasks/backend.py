"""The backend: enqueues Django's tasks as jobs, and looks up their results.

Django's `TaskResult` describes a task from its enqueuing to its end: status, times, errors and return value.
"""

from __future__ import annotations

from typing import Any, ParamSpec, TypeVar

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import transaction

from resty_django.callables import is_generator_function
from resty_django.conf import conf
from resty_django.txid import current as current_txid

from ... import job_classes
from ...clients.default import client
from ...clients.job import Job
from ...clients.put_options import checked_options
from ...clients.recurring import RecurringJob
from ...clients.replies import JobResult
from ...clients.serialization import encode
from ...errors import NotAllowed
from ...tasks.message import PutOptions, TaskMessage, waits_for_commit
from ...tasks.options import timestamp
from .compat import BaseTaskBackend, InvalidTask, Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus, signals
from .results import TaskRecord, set_fields, task_result, to_datetime
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

    A task becomes one job: `klass` is the path of the task's function, `data` is a `TaskRecord`, and the jid is the ID
    of the `TaskResult`.

    `OPTIONS` may contain:

    - `RETRIES`: how often a task that raised an exception runs again (default 0).
    - `BACKOFF`: seconds before the first retry, doubled for each further retry (default 1).
    - `ON_COMMIT`: whether a task that is enqueued in a transaction waits for its commit. By default, tasks wait if
      their queue is in the setting QLESS ON_COMMIT.
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

    def check(self, **kwargs: object) -> list[CheckMessage]:
        """Return the errors in the settings of this backend.

        `resty_qless.E004`: the app is not installed. `resty_qless.E005`: an unknown option, or a wrong value.
        """
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
        checked_options(run_after=task.run_after)  # raises TypeError
        super().validate_task(task)
        if is_generator_function(task.func):
            raise InvalidTask(f"{task.module_path} is a generator function. Remove yield from it.")

    # --- enqueuing ---

    def enqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Enqueue a task, and return its `TaskResult`, with the status READY.

        Raises `InvalidTask`, and `TypeError` for arguments that are not JSON.
        """
        now = client.clock()
        result = self._new_result(task, args, kwargs, now)
        message = self._message(result, now)

        def put() -> None:
            client.call(*message.request(client))
            signals.task_enqueued.send(type(self), task_result=result)

        if self.on_commit or (self.on_commit is None and waits_for_commit(conf.qless.on_commit, task.queue_name)):
            transaction.on_commit(put)
        else:
            put()
        return result

    async def aenqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Do the same for asyncio, at once: Django has no transactions in async code."""
        now = client.clock()
        result = self._new_result(task, args, kwargs, now)
        await client.acall(*self._message(result, now).request(client))
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def _new_result(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any], now: float) -> TaskResult[P, R]:
        """Return the `TaskResult` of a task that has not run. Raises `InvalidTask` if workers would refuse its job."""
        self.validate_task(task)
        try:
            job_classes.find(task.module_path)  # as a worker does
        except NotAllowed as error:
            raise InvalidTask(str(error)) from None
        return TaskResult(
            task=task,
            id=client.generate_jid(),
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
        """Return the job for a new `TaskResult`, ready to be sent.

        Without `RETRIES`, the server's default applies: if a worker dies, the job runs again, up to 5 times.
        """
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
            options=PutOptions(priority=task.priority, retries=self.retries or None),
            txid=current_txid(),
        )

    # --- results ---

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the `TaskResult` of a task. Raises `TaskResultDoesNotExist`, also if it has expired."""
        job = client.jobs.get(result_id)
        returned = client.jobs.result(result_id) if job is not None and job.state == "complete" else None
        return self._result(result_id, job, returned)

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """Do the same for asyncio."""
        job = await client.jobs.aget(result_id)
        returned = await client.jobs.aresult(result_id) if job is not None and job.state == "complete" else None
        return self._result(result_id, job, returned)

    def _result(
        self, result_id: str, job: Job | RecurringJob | None, returned: JobResult | None
    ) -> TaskResult[..., Any]:
        """Return the `TaskResult` of a job. `returned`: what the job has returned, if it is complete."""
        if not isinstance(job, Job) or not isinstance(job.data, dict) or job.data.get("backend") != self.alias:
            raise TaskResultDoesNotExist(result_id)  # this backend has not enqueued the job
        try:
            target = job_classes.find(job.klass)
        except (NotAllowed, ImportError):
            target = None
        if not isinstance(target, DjangoTask):
            raise TaskResultDoesNotExist(result_id)  # the task is no longer defined
        result = task_result(target.task, job)
        if job.state == "complete":
            if returned is None or returned.result is None:
                raise TaskResultDoesNotExist(result_id)  # the return value has expired
            set_fields(result, _return_value=returned.result["value"])  # as `DjangoTask` returns it
        return result
