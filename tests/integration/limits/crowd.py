"""Eight processes that use the same limits at the same time: `crowd.py ENGINE PLACE`.

PLACE is the folder of the dictionary, or the URL of a Redis. The clock stands still. Prints how many requests passed by
kind of limit as JSON. With `slots` as ENGINE one process takes three slots, says so and waits to be killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import django
from django.test import override_settings

NOW = 1_000_000.0
PROCESSES, EACH = 8, 40
LEASE = 5.0


def store(engine: str, location: str) -> Any:
    from resty_django.shdict.lmdb import LmdbDict
    from resty_django.shdict.redis import RedisDict

    if engine == "redis":
        return RedisDict("crowd")
    return LmdbDict("crowd", 8 * 1024 * 1024, location, lambda: NOW)


def limits(dictionary: Any) -> dict[str, Callable[[], Any]]:
    """Each lets 100 of the 320 requests pass."""
    from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket, combine

    def options(kind: str) -> dict[str, Any]:
        return {"store": dictionary, "clock": lambda: NOW, "on_error": "raise", "prefix": f"{kind}:"}

    slots, free = Concurrency(60, 40, **options("slots")), Concurrency(100, lease=None, **options("free"))
    three = [
        LeakyBucket(1, 200, **options("c1")),
        FixedWindow(100, 60, **options("c2")),
        Concurrency(300, **options("c3")),
    ]
    single = {
        "leaky bucket": LeakyBucket(1, 99, **options("leaky")),
        "fixed window": FixedWindow(100, 60, **options("fixed")),
        "sliding window": SlidingWindow(100, 60, **options("sliding")),
        "token bucket": TokenBucket.from_interval(1000, 100, 1, 0, **options("token")),
        "slots with leases": slots,
        "slots": free,
    }
    calls: dict[str, Callable[[], Any]] = {
        kind: lambda limiter=limiter: limiter.hit("k") for kind, limiter in single.items()
    }
    calls["combined"] = lambda: combine(three, ["k", "k", "k"])
    calls["combined twice"] = lambda: combine([three[0], three[0], three[2]], ["j", "j", "j"])
    return calls


def crowd(engine: str, location: str) -> dict[str, int]:
    dictionary = store(engine, location)
    dictionary.get("k")  # so that the parent has it open when it forks
    calls = limits(dictionary)
    pipes = []
    start = time.monotonic() + 0.3
    for _ in range(PROCESSES):
        reading, writing = os.pipe()
        if not os.fork():
            time.sleep(max(0, start - time.monotonic()))
            passed = dict.fromkeys(calls, 0)
            for _ in range(EACH):
                for kind, call in calls.items():
                    passed[kind] += bool(call())
            os.write(writing, json.dumps(passed).encode())
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
    results = []
    for reading in pipes:
        with os.fdopen(reading) as pipe:
            results.append(json.loads(pipe.read()))
    return {kind: sum(result[kind] for result in results) for kind in calls}


def hold(engine: str, location: str) -> None:
    from resty_django.limits import Concurrency

    slots = Concurrency(3, store=store(engine, location), clock=lambda: NOW, lease=LEASE, on_error="raise")
    print([slots.hit("k").allowed for _ in range(3)], flush=True)
    time.sleep(60)


def main(act: str, engine: str, location: str) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location}
    if engine == "lmdb":
        cache = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    django.setup()
    with override_settings(CACHES={"default": cache}):
        if act == "crowd":
            print(json.dumps(crowd(engine, location)))
        else:
            hold(engine, location)


if __name__ == "__main__":
    main(*sys.argv[1:])
