"""No-op jobs of one job queue, that which the variable `PEER` names, on the server in `BROKER`.

`main("noop", count)` puts jobs that do nothing and prints the seconds that it took. `main("stamp", count)` puts jobs
one by one, each when the last one has run, which append to the list `took` how long after its put each has started.
The workers of the peers import this module too.
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


if PEER == "ours":
    import django

    def noop(job: Any) -> None:
        pass

    def stamp(job: Any) -> None:
        took(job.data)

    def prepare() -> None:
        global put_noop, put_stamp
        django.setup()
        from resty_django.qless.clients.default import default_client

        queue = default_client().queues["default"]
        put_noop = lambda: queue.put("qless_jobs.noop", None)  # noqa: E731
        put_stamp = lambda at: queue.put("qless_jobs.stamp", at)  # noqa: E731

elif PEER == "celery":
    from celery import Celery

    app = Celery("qless_jobs", broker=BROKER)
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
    put_noop = lambda: queue.enqueue("qless_jobs.noop", result_ttl=0)  # noqa: E731
    put_stamp = lambda at: queue.enqueue("qless_jobs.stamp", at, result_ttl=0)  # noqa: E731


def main(what: str, count: int) -> None:
    if PEER == "ours":
        prepare()
    put = put_noop if what == "noop" else lambda: put_stamp(time.time())
    client = server(os.getpid())
    began = time.perf_counter()
    for number in range(count):
        put()
        while what == "stamp" and client.llen("took") <= number:
            time.sleep(0.002)
        if what == "stamp":
            time.sleep(0.02)  # the worker is idle again
    print(time.perf_counter() - began)
