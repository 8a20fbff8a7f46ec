"""A Celery app for the tests: run as a worker in a separate process, imported by the test that sends tasks."""

from __future__ import annotations

import os
import time
import uuid
from datetime import date, datetime
from typing import Any

import django
from celery import Celery, Task
from celery.exceptions import Ignore, Reject

from resty_django.qless.integrations import celery as bridge
from resty_django.txid import celery as txid_bridge
from resty_django.txid import current, current_request_id
from tests.integration.qless.returned import RETURNED

BROKER = os.environ.get("QLESS_TEST_BROKER")
if BROKER:  # a worker of Celery, or one of ours that hands over to it
    django.setup()
    txid_bridge.connect()
    bridge.connect()
app = Celery("qless-tests", broker=BROKER or "memory://")
app.set_default()
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_default_queue=os.environ.get("QLESS_TEST_QUEUE", "qless-tests"),
    redis_socket_timeout=10,
    worker_send_task_events=False,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)
TRAIL: list[Any] = []


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def coroutine(word: str) -> str:
    return word


@app.task
def rows() -> Any:
    return (number for number in range(3))


@app.task(bind=True, max_retries=3, default_retry_delay=0.02)
def retrying(self: Any, limit: int, sent: str = "") -> list[Any]:
    request = self.request
    TRAIL.append((request.retries, request.id, request.args, request.kwargs))
    if request.retries < limit:
        raise self.retry(exc=OSError(f"run {request.retries}"), kwargs={"sent": "again"})
    return [request.id, request.retries, sent, request.delivery_info["routing_key"], request.called_directly]


@app.task(autoretry_for=(OSError,), retry_backoff=False, default_retry_delay=0.02, max_retries=2)
def auto() -> int:
    TRAIL.append("auto")
    if TRAIL.count("auto") < 3:
        raise OSError("not yet")
    return TRAIL.count("auto")


@app.task(bind=True)
def retries_later(self: Any) -> None:
    raise self.retry(exc=OSError("not there"), countdown=600)


@app.task(name="another.name")
def typed(day: date, at: datetime, key: uuid.UUID) -> list[str]:
    return [type(argument).__name__ for argument in (day, at, key)]


@app.task
def returns(name: str) -> Any:
    return RETURNED[name]


@app.task
def fails() -> None:
    raise ValueError("broken on purpose")


@app.task
def ignores() -> None:
    raise Ignore


@app.task
def rejects() -> None:
    raise Reject("no good")


@app.task
def naps(path: str, seconds: float = 600.0) -> str:
    """Says that it has begun, in a file; a second run takes no time."""
    first = not os.path.exists(path)
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    if first:
        time.sleep(seconds)
    return "rested"


@app.task(time_limit=1)
def overruns(path: str) -> None:
    naps(path)


@app.task(acks_late=True, reject_on_worker_lost=True)
def comes_again(path: str) -> str:
    return str(naps(path))


@app.task
def strange() -> object:
    return object()


class Watched(Task):  # type: ignore[misc]
    """A task class with its own handlers."""

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        TRAIL.append(("success", task_id, retval))

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        TRAIL.append(("failure", task_id, str(exc)))

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        TRAIL.append(("retry", task_id, str(exc)))


@app.task(base=Watched, bind=True, max_retries=1, default_retry_delay=0)
def watched(self: Any, good: bool) -> str:
    if good:
        return "fine"
    raise self.retry(exc=OSError("bad"))


@app.task
def txid() -> str | None:
    return current()


@app.task
def ids() -> list[str | None]:
    return [current(), current_request_id()]


@app.task(soft_time_limit=0.2)
def slow() -> None:
    while True:
        time.sleep(0.01)
