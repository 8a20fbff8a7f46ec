"""The backend: enqueues Django's tasks as jobs, and looks up their results.

The life of a task, as Django's `TaskResult` describes it:

1. `QlessBackend.enqueue` makes a `TaskResult` with the status READY, and sends a job: a `TaskMessage`.
2. The job waits in Redis. Its jid is the ID of the `TaskResult`, its class the path of the task's function, and its
   data a `TaskRecord`: arguments, times and errors.
3. A worker calls `job_classes.find` with that path. It imports the Django task and wraps it in a `DjangoTask`.
4. `DjangoTask.perform` calls the function, updates the record, and returns the value, which becomes the job's result.
5. `QlessBackend.get_result` reads the job and its result, and makes a new `TaskResult` of both.
"""

from __future__ import annotations

from typing import Any, Final, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.db import connections, transaction

from resty_django.callables import is_generator_function
from resty_django.conf import conf
from resty_django.txid.context import current_ids

from ... import job_classes
from ...clients.default import client
from ...clients.job import Job
from ...clients.put_options import checked_options
from ...clients.recurring import RecurringJob
from ...clients.replies import JobResult
from ...clients.serialization import encode
from ...clients.transport import Steps
from ...errors import NotAllowed
from ...tasks.canvas import callbacks_of
from ...tasks.message import ArgumentSource, PutOptions, TaskMessage, includes, write_to_outbox
from ...tasks.options import NO_OPTIONS, timestamp, timing
from .compat import BaseTaskBackend, InvalidTask, Task, TaskResult, TaskResultDoesNotExist, TaskResultStatus, signals
from .results import TaskRecord, result_from_job, to_datetime
from .runner import DjangoTask
from .task import NO_TASK_OPTIONS, QlessTask, options_of

P = ParamSpec("P")
R = TypeVar("R")

VALUE: Final = ArgumentSource("pass", "value")
"""The first argument of callbacks: an outcome that contains the return value of the task."""


class QlessBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs, which the workers of `manage.py runqless` run.

        TASKS = {
            "default": {
                "BACKEND": "resty_django.qless.integrations.django_tasks.QlessBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {"RETRIES": 3, "BACKOFF": 2},
            }
        }

    `OPTIONS` may contain:

    - `RETRIES`: how often a task runs again after an exception or the death of its worker; with 0, never. Without this
      option, it does so only after the death of a worker, up to 5 times.
    - `BACKOFF`: seconds before the first retry after an exception, doubled for each further retry (default 1).
    - `ON_COMMIT`: whether a task that `enqueue` gets in a transaction waits for its commit. By default, tasks wait if
      their queue is in the setting QLESS ON_COMMIT. `aenqueue` never waits: async code has no transactions in Django.
    - `OUTBOX`: whether tasks go through the outbox. By default, they do if their queue is in QLESS OUTBOX.

    Wrong values of `RETRIES` and `BACKOFF` raise `TypeError` or `InvalidArgument` at the first use of the backend.
    Tasks may have options, too: see `QlessTask`.
    """

    task_class = QlessTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    option_names = frozenset(("RETRIES", "BACKOFF", "ON_COMMIT", "OUTBOX"))
    """The keys that `OPTIONS` may contain."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = checked_options(
            f"TASKS[{alias!r}] OPTIONS: ",
            retries=self.options.get("RETRIES"),
            backoff=self.options.get("BACKOFF", 1.0),
        )
        self.retries: int | None = options["retries"]
        """None: the server's default, and only after the death of a worker. Applies to tasks without `retries`."""
        self.backoff: float = options["backoff"]
        """Read by workers after an exception in a task without `backoff`."""
        self.on_commit: bool | None = self.options.get("ON_COMMIT")
        self.outbox: bool | None = self.options.get("OUTBOX")

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
        for name, value in (("ON_COMMIT", self.on_commit), ("OUTBOX", self.outbox)):
            if value not in (None, True, False):
                text = f"{setting} {name} must be True or False, not {value!r}."
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

        If the task is `unique` and a job with these arguments waits or runs already, the result has the ID of this job,
        and `refresh()` loads its state.

        Raises `InvalidTask`, `TypeError` for arguments that are not JSON, and `NotAllowed` for a callback that workers
        would refuse.
        """
        now = client.clock()
        result = self._new_result(task, args, kwargs, now)
        job = self._job_message(result, now)

        def announce() -> None:
            signals.task_enqueued.send(type(self), task_result=result)

        def put() -> None:
            client.call(*job.request(client))
            announce()

        if self._uses_outbox(task):
            write_to_outbox([job], [])
            alias = conf.qless.outbox.database[0]
            if connections[alias].in_atomic_block:
                transaction.on_commit(announce, using=alias)
            else:  # committed, or in a manual transaction, whose commit Django does not report
                announce()
        elif self.on_commit or (self.on_commit is None and includes(conf.qless.on_commit, task.queue_name)):
            transaction.on_commit(put)
        else:
            put()
        return result

    def _uses_outbox(self, task: Task[..., Any]) -> bool:
        return includes(conf.qless.outbox.queues, task.queue_name) if self.outbox is None else self.outbox

    async def aenqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Do the same for asyncio. Without the outbox, it does so at once, whatever `ON_COMMIT` is."""
        if self._uses_outbox(task):
            return await sync_to_async(self.enqueue)(task, args, kwargs)
        now = client.clock()
        result = self._new_result(task, args, kwargs, now)
        job = self._job_message(result, now)
        await client.acall(*job.request(client))
        await signals.task_enqueued.asend(type(self), task_result=result)
        return result

    def _new_result(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any], now: float) -> TaskResult[P, R]:
        """Return the `TaskResult` of a task that has not run. Raises `InvalidTask` if workers would refuse its job."""
        self.validate_task(task)
        try:
            job_classes.find(task.module_path)  # a worker finds the task of the job in the same way
        except NotAllowed as error:
            raise InvalidTask(str(error)) from None
        unique_id = task.unique_id(args, kwargs) if isinstance(task, QlessTask) else None
        return TaskResult(
            task=task,
            id=unique_id or client.generate_jid(),
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

    def _job_message(self, result: TaskResult[P, R], now: float) -> TaskMessage:
        """Return the job for a new `TaskResult`, ready to be sent."""
        task, options = result.task, options_of(result.task)
        run_after = None if task.run_after is None else timestamp(task.run_after)
        expires = task.expires if isinstance(task, QlessTask) else None
        retries = self.retries if options.retries is None else options.retries
        record = TaskRecord(
            args=result.args,
            kwargs=result.kwargs,
            backend=self.alias,
            enqueued=now,
            run_after=run_after,
            expires=None if expires is None else timing(lambda: now, None, None, expires).expires_at,
            retried=retries is not None or options.backoff is not None,
        )
        consequences = None
        if options is not NO_TASK_OPTIONS and options.reactions:
            consequences = callbacks_of(NO_OPTIONS.over(options), client, VALUE, outcome=VALUE)
        return TaskMessage(
            queue=task.queue_name,
            jid=result.id,
            klass=task.module_path,
            data=encode(record.to_data()),
            when=run_after,
            options=PutOptions(priority=task.priority or None, retries=retries, tags=[*options.tags]),
            unique=bool(options.unique),
            ids=current_ids(),
            consequences=consequences,
        )

    # --- results ---

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return the `TaskResult` of a task. Raises `TaskResultDoesNotExist`, also if it has expired."""
        job = client.jobs.get(result_id) or client.run(self._in_outbox(result_id))
        job_result = client.jobs.result(result_id) if job is not None and job.state == "complete" else None
        return self._result_of(result_id, job, job_result)

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """Do the same for asyncio."""
        job = await client.jobs.aget(result_id) or await client.arun(self._in_outbox(result_id))
        job_result = await client.jobs.aresult(result_id) if job is not None and job.state == "complete" else None
        return self._result_of(result_id, job, job_result)

    def _in_outbox(self, result_id: str) -> Steps[Job | RecurringJob | None]:
        """Return a job that waits in the outbox, or was delivered in the meantime."""
        if not conf.qless.outbox.is_used:
            return None
        from ...outbox.lookup import find, jobs_of  # needs models

        for entry in (yield from find(result_id)):
            for job in jobs_of(client, entry):
                if job.jid == result_id:
                    return job
        return (yield from client.jobs._get(result_id))

    def _result_of(
        self, result_id: str, job: Job | RecurringJob | None, job_result: JobResult | None
    ) -> TaskResult[..., Any]:
        """Return the `TaskResult` of a job. `job_result`: the result that Redis keeps, if the job is complete."""
        if not isinstance(job, Job) or not isinstance(job.data, dict) or job.data.get("backend") != self.alias:
            raise TaskResultDoesNotExist(result_id)  # this backend has not enqueued the job
        try:
            target = job_classes.find(job.klass)
        except (NotAllowed, ImportError):
            target = None
        if not isinstance(target, DjangoTask):
            raise TaskResultDoesNotExist(result_id)  # the task is no longer defined
        result = result_from_job(target.task, job)
        if job.state == "complete":
            if job_result is None or job_result.result is None:
                raise TaskResultDoesNotExist(result_id)  # the return value has expired
            # the class is frozen, and Django's own backends do the same; `DjangoTask` returned {"value": ...}
            object.__setattr__(result, "_return_value", job_result.result["value"])
        return result
