"""Tasks of the job queue that the variable `PEER` names, on the server in `BROKER`, for `tasks.py`.

`main("noop", count)` puts tasks that do nothing and prints the seconds that it took; of ours, `"result"` puts tasks
whose results are kept, and `"job"` plain jobs. `main("stamp", count)` puts tasks one by one, each when the last one has
run, which append to the list `took` how long after its put each has started. The workers of the peers import this
module too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import redis

PEER, BROKER = os.environ["PEER"], os.environ["BROKER"]
put_noop: Callable[[], Any]
put_stamp: Callable[[float], Any]


@cache
def server(pid: int) -> redis.Redis:
    return redis.Redis.from_url(BROKER)


def took(at: float) -> None:
    server(os.getpid()).rpush("took", time.time() - at)


if PEER in ("ours", "bridge"):
    import django

    django.setup()
    from resty_django.qless import task

    task = getattr(task, "task", task)  # a module in older commits, see jobs.py

    if PEER == "bridge":
        from celery import Celery

        from resty_django.qless.integrations.celery import connect

        app = Celery("tasks_jobs", broker=BROKER)
        app.set_default()
        app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)
        connect()

    @task(ignore_result=True)
    def noop() -> None:
        pass

    @task
    def result() -> None:
        pass

    @task(ignore_result=True)
    def stamp(at: float) -> None:
        took(at)

    def job(job: Any) -> None:
        pass

    put_noop, put_stamp = noop.delay, stamp.delay

elif PEER == "celery":
    from celery import Celery

    app = Celery("tasks_jobs", broker=BROKER)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)

    @app.task
    def noop() -> None:
        pass

    @app.task
    def stamp(at: float) -> None:
        took(at)

    put_noop, put_stamp = noop.delay, stamp.delay

elif PEER == "dramatiq":
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    dramatiq.set_broker(RedisBroker(url=BROKER))

    @dramatiq.actor
    def noop() -> None:
        pass

    @dramatiq.actor
    def stamp(at: float) -> None:
        took(at)

    put_noop, put_stamp = noop.send, stamp.send

elif PEER == "huey":
    from huey import RedisHuey

    huey = RedisHuey("bench", url=BROKER, results=False)

    @huey.task()
    def noop() -> None:
        pass

    @huey.task()
    def stamp(at: float) -> None:
        took(at)

    put_noop, put_stamp = noop, stamp

elif PEER == "rq":
    import rq

    def noop() -> None:
        pass

    def stamp(at: float) -> None:
        took(at)

    queue = rq.Queue(connection=server(os.getpid()))
    put_noop = lambda: queue.enqueue("tasks_jobs.noop", result_ttl=0)  # noqa: E731
    put_stamp = lambda at: queue.enqueue("tasks_jobs.stamp", at, result_ttl=0)  # noqa: E731


def main(what: str, count: int) -> None:
    if what == "job":
        from resty_django.qless.clients.default import default_client

        queue = default_client().queues["default"]
        put = lambda: queue.put("tasks_jobs.job", None)  # noqa: E731
    elif what == "stamp":
        put = lambda: put_stamp(time.time())  # noqa: E731
    else:
        put = result.delay if what == "result" else put_noop
    client = server(os.getpid())
    began = time.perf_counter()
    for number in range(count):
        put()
        if number == 0 and what != "stamp":
            began = time.perf_counter()  # the first put connects
        while what == "stamp" and client.llen("took") <= number:
            time.sleep(0.002)
        if what == "stamp":
            time.sleep(0.02)  # the worker is idle again
    print((time.perf_counter() - began) * count / max(1, count - 1))
