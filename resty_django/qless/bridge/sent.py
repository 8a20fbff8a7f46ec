"""Tasks that Celery runs, each of which is a job at the same time, for those that depend on it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kombu.utils.uuid import uuid

from resty_django.txid import current

from ..classes import Performer
from ..default import default_client
from ..errors import QlessError
from ..job import Job
from ..options import list_text
from ..worker.outcomes import RequeueLater
from ..worker.perform import LONGEST_MESSAGE, message_of
from .arguments import as_json, check, dumped, loaded
from .taken import process_name

HEADER: Final = "qless_job"
"""The header of messages whose task is a job at the same time."""
QUEUE: Final = "default"
FAR: Final = 10 * 365 * 86_400.0
"""Seconds; for a job that waits for Celery to tell how it ended."""
PATIENCE: Final = 20.0
"""Seconds that the end of a task waits for our worker to let go of its job."""

SUCCESS, FAILURE, RETRY, REJECTED = "SUCCESS", "FAILURE", "RETRY", "REJECTED"
"""States of Celery."""


def send(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    depends: Iterable[Any] = (),
    task_id: str | None = None,
    queue: str = QUEUE,
    **options: Any,
) -> str:
    """Send a task to Celery when the jobs `depends` have ended well; gives its ID, which is a jid too.

    Other jobs may depend on that: they wait until Celery's worker has told of its end (`connect`). `options` are those
    of Celery's `apply_async`, and JSON. With `depends` a worker of our queue `queue` sends it.
    """
    client = default_client()
    check(task, args, kwargs)
    jid, txid = task_id or uuid(), current()
    data = {"args": [*args], "kwargs": {**(kwargs or {})}, "options": options}
    waited = [str(each) for each in depends]
    more = (*(("depends", list_text("depends", waited)) if waited else ()), *(("txid", txid) if txid else ()))
    delay = 0 if waited else FAR
    job = (jid, f"celery-send:{task.name}", dumped(data), delay)
    client.call("put", client.worker_name, queue, *job, "retries", 1000, *more)
    if not waited:
        try:
            _publish(task, jid, args, kwargs or {}, options, txid)
        except BaseException:
            client.call("cancel", jid)
            raise
    return jid


class CelerySend(Performer):
    """Sends a task whose dependencies have ended, and leaves the job until Celery tells of its end."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self.__module__ = task.__module__
        self.names = [*inspect.signature(task.run).parameters]

    def perform(self, job: Job) -> None:
        given = loaded(job)
        _publish(self.task, job.jid, given["args"], given["kwargs"], given["options"], job.txid)
        raise RequeueLater(FAR)


def _publish(
    task: Any, jid: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any], txid: str | None
) -> None:
    headers = {**options.get("headers", {}), HEADER: jid, **({"txid": txid} if txid else {})}
    task.apply_async(args, kwargs, **{**options, "task_id": jid, "headers": headers})


def ended(task: Any, task_id: str, state: str | None, retval: Any, **kwargs: Any) -> None:
    """Celery's worker has run a task: tell its job."""
    if (task.request.headers or {}).get(HEADER) != task_id or state in (RETRY, REJECTED, None):
        return
    client = default_client()
    client.worker_name = process_name()
    until = time.monotonic() + PATIENCE
    while True:
        try:
            client.call("take", task_id, client.worker_name)
            break
        except QlessError as error:
            # our worker has sent it, and is about to let go of it
            if "running" not in str(error) or time.monotonic() > until:
                return
            time.sleep(0.02)
    job: Any = client.jobs.get(task_id)
    if state == FAILURE:
        message = message_of(retval) if isinstance(retval, BaseException) else str(retval)
        job.fail(f"celery-{type(retval).__name__}", message[:LONGEST_MESSAGE])
    else:
        job.complete(result=as_json(job, retval if state == SUCCESS else None))


__all__ = ["HEADER", "QUEUE", "CelerySend", "ended", "send"]
