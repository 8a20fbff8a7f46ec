"""Tasks that do nothing, for `tasks.py` and `chord.py`: ours, and for the bridge the same jobs on workers of Celery.

`main("noop", count)` puts them by `delay`, `main("result", count)` those whose results are kept, and prints the seconds
that it took.
"""

from __future__ import annotations

import os
import time

import django

django.setup()

from resty_django.qless import task  # noqa: E402 (the settings come first)

if os.environ["PEER"] == "bridge":
    from celery import Celery

    from resty_django.qless.integrations.celery import connect

    app = Celery("tasks_jobs", broker=os.environ["BROKER"])
    app.set_default()
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)
    connect()


@task(ignore_result=True)
def noop() -> None:
    pass


@task
def result() -> None:
    pass


@task
def member() -> int:
    return 1


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


def main(what: str, count: int) -> None:
    put = {"noop": noop, "result": result}[what].delay
    put()
    began = time.perf_counter()
    for _ in range(count - 1):
        put()
    print((time.perf_counter() - began) * count / (count - 1))
