"""The bridge to Celery.

    # in the module that contains the site's Celery app
    from resty_django.qless.integrations.celery import connect
    connect()

- `put_task` enqueues a Celery task as a job, which the workers of this package run.
- `manage.py runqless --via celery` dispatches jobs to Celery's workers.
- `send` sends a task to Celery that can depend on jobs, and on which jobs can depend.

See docs/reference/jobs/celery.md.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from queue import SimpleQueue
from typing import Any, Final, TypedDict, Unpack

from resty_django import extras

with extras.needed("The bridge to Celery needs"):
    from celery import Task, current_app, shared_task, signals, states
    from celery.app.trace import build_tracer
    from celery.exceptions import Retry
    from celery.utils.dispatch import Signal

from resty_django.callables import completed
from resty_django.txid.context import current_ids

from ...clients.client import Client
from ...clients.default import default_client
from ...clients.job import Job
from ...clients.put_options import check_names, checked_options
from ...errors import NotAllowed, QlessError
from ...job_classes import SOURCES, Runnable
from ...middleware.bounds import Timeout
from ...outcomes import RequeueLater
from ...outcomes.error_text import message_of
from ...tasks.message import PutOptions, TaskMessage, arguments_of
from ...tasks.options import timestamp, timing
from . import tracking
from .dispatcher import CeleryDispatcher
from .runner import process_name, run_borrowed
from .serialization import as_json, check, dumped, loaded
from .tracking import HEADER, CelerySend, send

RUN_TASK_NAME: Final = "resty_django.qless.run"
"""The name of the Celery task that runs a job; for `task_routes`."""


class CeleryRejected(QlessError):
    """The Celery task raised `Reject`."""


def connect() -> None:
    """Prepare Celery in this process to run jobs, and to report the end of tasks that jobs depend on. Idempotent."""
    receivers: tuple[tuple[Signal, Callable[..., None]], ...] = (
        (signals.task_prerun, tracking.on_prerun),
        (signals.task_postrun, tracking.on_postrun),
        (signals.task_failure, tracking.on_failure),
        (signals.task_revoked, tracking.on_revoked),
        (signals.task_rejected, tracking.on_rejected),
        (signals.task_unknown, tracking.on_rejected),
        (signals.worker_ready, tracking.sweep.start),
        (signals.worker_process_shutdown, _deregister),
        (signals.worker_shutdown, _shut_down),
    )
    for signal, receiver in receivers:
        signal.connect(receiver, dispatch_uid="resty_django.qless", weak=False)


# --- Celery tasks as jobs ---


class PutTaskOptions(TypedDict, total=False):
    """Options of `put_task`.

    - `queue`: the queue of the job (default: "default").
    - `countdown`: seconds until the task may run.
    - `eta`: the time from which it may run; instead of `countdown`.
    - `expires`: seconds from now, or a time, after which the task fails instead of starting.
    - `priority`: jobs with higher numbers run first.
    - `task_id`: the ID, instead of a random one.
    - `depends`: an ID, a result or a job that must succeed first, or several.
    - `tags`: tags of the job.
    - `retries`: how often the job runs again after the loss of a worker (default 5), in addition to the task's own
      `max_retries`.
    """

    queue: str
    countdown: float | None
    eta: datetime | None
    expires: float | datetime | None
    priority: int | None
    task_id: str | None
    depends: Any
    tags: Iterable[str]
    retries: int | None


def put_task(
    task: Task, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[PutTaskOptions]
) -> str:
    """Enqueue a Celery task as a job, and return its jid, which is the task's ID.

    `options`: see `PutTaskOptions`. Raises `TypeError` if the task does not accept the arguments, and `InvalidArgument`
    if they are not JSON.
    """
    check_names("put_task", options, PutTaskOptions)
    check(task, args, kwargs)
    client = default_client()
    given = checked_options(**{name: options.get(name) for name in PutTaskOptions.__annotations__})
    when, until = timing(client.clock, given["countdown"], given["eta"], given["expires"])
    data: dict[str, Any] = {"args": [*args], "kwargs": {**(kwargs or {})}}
    if until is not None:
        data["expires"] = until
    put_options = PutOptions(
        priority=given["priority"], retries=given["retries"], tags=given["tags"] or (), depends=given["depends"] or ()
    )
    message = TaskMessage(
        queue="default" if given["queue"] is None else given["queue"],
        jid=given["task_id"] or client.generate_jid(),
        klass=f"celery:{task.name}",
        data=dumped(data),
        when=when,
        options=put_options,
        ids=current_ids(),
    )
    client.call(*message.request(client))
    return message.jid


class CeleryTask(Runnable):
    """Runs a Celery task in a worker of this package, with Celery's request, retries, signals and handlers."""

    keep_result = True
    middleware: Sequence[Timeout] = ()

    def __init__(self, task: Task) -> None:
        self.task = task
        self.__module__ = task.__module__
        self.call_signature = inspect.signature(task.run)
        self.parameter_names = [*self.call_signature.parameters]
        limit = task.soft_time_limit or task.time_limit
        if limit:
            self.middleware = (Timeout(float(limit)),)
        self._trace = build_tracer(task.name, task, eager=True, app=task.app)

    def perform(self, job: Job) -> object:
        """Run the task and return its result. Raises its error, and `RequeueLater` if Celery retries it."""
        data = loaded(job)
        args = [*_first_argument(job, data), *data["args"]]
        retries = int(data.get("retries", 0))
        traced = self._trace(job.jid, args, data["kwargs"], self._request(job, args, data["kwargs"], retries))
        if traced.info is None:
            return as_json(job, completed(traced.retval))
        state, error = traced.info.state, traced.info.retval
        if state == states.RETRY:
            raise _prepare_retry(job, data, error) from error.exc
        if state == states.REJECTED and error.requeue:
            raise RequeueLater(0, job.retries_left)
        if state == states.REJECTED:
            raise CeleryRejected(f"The task rejected itself: {error.reason}.")
        if state == states.IGNORED:
            return None
        raise error

    def _request(self, job: Job, args: list[Any], kwargs: dict[str, Any], retries: int) -> dict[str, Any]:
        """Return a request like the one of `Task.apply`: `is_eager` makes `retry` raise instead of sending the task."""
        return {
            "id": job.jid,
            "root_id": job.jid,
            "parent_id": None,
            "task": self.task.name,
            "retries": retries,
            "is_eager": True,
            "called_directly": False,
            "loglevel": 0,
            "logfile": None,
            "hostname": job.worker_name,
            "headers": tracking.ids_of(job) or None,
            "callbacks": None,
            "errbacks": None,
            "delivery_info": {
                "is_eager": True,
                "exchange": None,
                "routing_key": job.queue_name,
                "priority": job.priority,
                "redelivered": False,
            },
        }


def _first_argument(job: Job, data: Mapping[str, Any]) -> list[Any]:
    """Return the argument before the stored ones, if any: the result of another job, or the outcome of a callback."""
    args, _ = job.client.run(arguments_of(job))
    return args[: len(args) - len(data["args"])]


def _prepare_retry(job: Job, data: dict[str, Any], retry: Retry) -> RequeueLater:
    """Store the arguments of the next run in the job. Return the exception that requeues it."""
    data |= {"args": [*retry.sig.args], "kwargs": {**retry.sig.kwargs}, "retries": int(data.get("retries", 0)) + 1}
    for name in SOURCES:
        data.pop(name, None)
    if "expires" in data and retry.exc is not None:
        data["error"] = message_of(retry.exc)  # a requeue stores no failure
    job.data = json.loads(dumped(data))
    when = retry.when
    delay = timestamp(when) - job.client.clock() if isinstance(when, datetime) else float(when or 0)
    return RequeueLater(max(0.0, delay), job.retries_left)


def celery_task(name: str) -> CeleryTask:
    """Return the runner of the jobs `celery:<name>`. Raises `NotAllowed` if Celery does not know the task."""
    return CeleryTask(_registered(name))


def celery_send(name: str) -> CelerySend:
    """Return the runner of the jobs `celery-send:<name>`. Raises `NotAllowed` if Celery does not know the task."""
    return CelerySend(_registered(name))


# --- jobs that Celery's workers run ---


def make_dispatcher(inbox: SimpleQueue[Any]) -> CeleryDispatcher:
    """Return the executor of `runqless --via celery`, which sends jobs to Celery."""

    producers: list[Any] = []

    def send_message(job: Job) -> None:
        if not producers:
            producers.append(current_app.producer_pool.acquire(block=True))
        options = {"headers": tracking.ids_of(job) or None, "producer": producers[0], "retry": False}
        try:
            run.apply_async(
                (job.jid, job.worker_name),
                task_id=job.jid,
                argsrepr=job.klass,
                kwargsrepr="",
                add_to_parent=False,
                **options,
            )
        except BaseException:
            producers.pop().release()
            raise

    return CeleryDispatcher(inbox, send_message)


def _run(jid: str, holder: str) -> list[str]:
    """Run a job that a worker of this package dispatched, and a few more; return how they ended."""
    return [end for _, end in run_borrowed(tracking.own_client(), jid, holder)]


run: Task = shared_task(name=RUN_TASK_NAME, ignore_result=True)(_run)
"""The Celery task that runs jobs."""


def _shut_down(**kwargs: object) -> None:
    tracking.sweep.stop()
    _deregister()


def _deregister(**kwargs: object) -> None:
    client: Client = default_client()
    if client.worker_name == process_name():
        client.deregister_workers([process_name()])


def _registered(name: str) -> Task:
    app = current_app._get_current_object()
    if name not in app.tasks:
        app.loader.import_default_modules()
        app.finalize()
    if name not in app.tasks:
        raise NotAllowed(
            f"Celery's app {app.main!r} does not know the task {name!r}. Import the module with the app in the package "
            "of the site's settings, and make sure that the app discovers the task."
        )
    return app.tasks[name]


__all__ = [
    "HEADER",
    "RUN_TASK_NAME",
    "CeleryRejected",
    "celery_send",
    "celery_task",
    "connect",
    "make_dispatcher",
    "put_task",
    "send",
]
