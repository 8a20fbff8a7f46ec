"""The bridge to Celery, and the only module of the queue that imports it.

    # in the module with the Celery app of the site
    from resty_django.qless.celery import connect
    connect()

- `put_task` puts a task of Celery as a job, which our workers run.
- `manage.py runqless --via celery` hands jobs to the workers of Celery.
- `send` sends a task to Celery that jobs can depend on, and that depends on jobs.

docs/qless/celery.md tells all of it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from queue import SimpleQueue
from typing import Any, Final

from celery import current_app, shared_task, signals, states
from celery.app.trace import build_tracer

from resty_django.txid import current

from .bridge.arguments import as_json, check, dumped, loaded
from .bridge.handover import HandOver
from .bridge.sent import HEADER, QUEUE, CelerySend, ended, send
from .bridge.taken import process_name, run_taken
from .classes import Performer
from .clients import Client
from .default import default_client
from .errors import NotAllowed, QlessError
from .job import Job
from .message import Message, call_of
from .options import list_text
from .run import timestamp
from .worker.outcomes import RequeueLater

NAME: Final = "resty_django.qless.run"
"""The task of Celery that runs a job; for `task_routes`."""


class CeleryRejected(QlessError):
    """The task of Celery raised `Reject`."""


def connect() -> None:
    """Let the tasks of Celery in this process run jobs, and tell of the end of those that jobs depend on; may be called
    again."""
    signals.task_postrun.connect(ended, dispatch_uid="resty_django.qless")
    signals.worker_process_shutdown.connect(_deregister, dispatch_uid="resty_django.qless")
    signals.worker_shutdown.connect(_deregister, dispatch_uid="resty_django.qless")


# --- a task of Celery as a job ---


def put_task(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue: str = QUEUE,
    countdown: float | None = None,
    eta: datetime | None = None,
    priority: int | None = None,
    task_id: str | None = None,
    depends: Iterable[Any] = (),
    tags: Iterable[str] = (),
    expires: float | datetime | None = None,
    retries: int | None = None,
) -> str:
    """Put a task of Celery as a job; gives its jid, which the task sees as its ID.

    The options are those of our tasks; `retries`: how often it is run again after the loss of a worker (None: 5),
    beside the task's own `max_retries`. Raises `TypeError` where the task does not take the arguments,
    `InvalidArgument` where they are no JSON.
    """
    client = default_client()
    check(task, args, kwargs)
    now = client.clock()
    data: dict[str, Any] = {"args": [*args], "kwargs": {**(kwargs or {})}}
    if expires is not None:
        data["expires"] = timestamp(expires) if isinstance(expires, datetime) else now + expires
    options: dict[str, Any] = {"priority": priority, "retries": retries, "txid": current()}
    for name, texts in (("tags", tags), ("depends", depends)):
        options[name] = list_text(name, [str(each) for each in texts]) if texts else None
    when = now + countdown if countdown else None if eta is None else timestamp(eta)
    message = Message(
        queue=queue,
        jid=task_id or client.generate_jid(),
        klass=f"celery:{task.name}",
        data=dumped(data),
        when=when,
        options=tuple(part for pair in options.items() if pair[1] is not None for part in pair),
    )
    client.call(*message.request(client))
    return message.jid


class CeleryTask(Performer):
    """Runs a task of Celery in our worker, as Celery's own would: with its request, retries, signals and handlers."""

    keep_result = True

    def __init__(self, task: Any) -> None:
        self.task = task
        self.__module__ = task.__module__
        self.names = [*inspect.signature(task.run).parameters]
        limit = task.soft_time_limit or task.time_limit
        if limit:
            from .worker.middleware import Timeout

            self.middleware = (Timeout(float(limit)),)
        self._trace = build_tracer(task.name, task, eager=True, app=task.app)

    def perform(self, job: Job) -> Any:
        given = loaded(job)
        call = job.client.run(call_of(job))
        args = [*call.args[: len(call.args) - len(given["args"])], *given["args"]]
        retries = int(given.get("retries", 0))
        traced = self._trace(job.jid, args, given["kwargs"], self._request(job, args, given["kwargs"], retries))
        if traced.info is None:
            return as_json(job, traced.retval)
        state, error = traced.info.state, traced.info.retval
        if state == states.RETRY:
            data = {**given, "args": [*error.sig.args], "kwargs": {**error.sig.kwargs}, "retries": retries + 1}
            data.pop("from", None)
            job.data = json.loads(dumped(data))
            when = error.when
            delay = timestamp(when) - job.client.clock() if isinstance(when, datetime) else float(when or 0)
            raise RequeueLater(max(0.0, delay), job.retries_left) from error.exc
        if state == states.REJECTED and error.requeue:
            raise RequeueLater(0, job.retries_left)
        if state == states.REJECTED:
            raise CeleryRejected(f"The task rejected itself: {error.reason}.")
        if state == states.IGNORED:
            return None
        raise error

    def _request(self, job: Job, args: list[Any], kwargs: dict[str, Any], retries: int) -> dict[str, Any]:
        """As `Task.apply` makes it: `is_eager` lets `retry` raise, rather than send the task to the broker."""
        return {
            **{"id": job.jid, "root_id": job.jid, "parent_id": None, "task": self.task.name, "retries": retries},
            **{"is_eager": True, "called_directly": False, "loglevel": 0, "logfile": None, "hostname": job.worker_name},
            **{"headers": {"txid": job.txid} if job.txid else None, "callbacks": None, "errbacks": None},
            "delivery_info": {
                **{"is_eager": True, "exchange": None, "routing_key": job.queue_name},
                **{"priority": job.priority, "redelivered": False},
            },
        }


def performer(name: str) -> CeleryTask:
    """What runs the jobs `celery:<name>`. Raises `NotAllowed` where Celery knows no such task."""
    return CeleryTask(_registered(name))


def sender(name: str) -> CelerySend:
    """What runs the jobs `celery-send:<name>`."""
    return CelerySend(_registered(name))


# --- jobs that Celery's workers run ---


def hand_over(inbox: SimpleQueue[Any]) -> HandOver:
    """Where the jobs of `runqless --via celery` go."""

    held: list[Any] = []

    def post(job: Any) -> None:
        if not held:
            held.append(current_app.producer_pool.acquire(block=True))
        options = {"headers": {"txid": job.txid} if job.txid else None, "producer": held[0], "retry": False}
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
            held.pop().release()
            raise

    return HandOver(inbox, post)


@shared_task(name=NAME, ignore_result=True)  # type: ignore[untyped-decorator]
def run(jid: str, holder: str) -> list[str]:
    """Run a job that a worker of ours has handed over, and some more; gives how they ended."""
    client = default_client()
    client.worker_name = process_name()
    return [end for _, end in run_taken(client, jid, holder)]


def _deregister(**kwargs: Any) -> None:
    client: Client = default_client()
    if client.worker_name == process_name():
        client.deregister_workers([process_name()])


def _registered(name: str) -> Any:
    app = current_app._get_current_object()
    if name not in app.tasks:
        app.loader.import_default_modules()
        app.finalize()
    if name not in app.tasks:
        raise NotAllowed(
            f"Celery's app {app.main!r} knows no task {name!r}. Import the module with the app in the package of the "
            "site's settings, and let it find the task."
        )
    return app.tasks[name]


__all__ = ["HEADER", "NAME", "CeleryRejected", "connect", "hand_over", "performer", "put_task", "send", "sender"]
