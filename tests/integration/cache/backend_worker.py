"""A process that uses Django's cache, and prints a JSON list per event. Each function here is one of its tasks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from decimal import Decimal
from typing import Any


def say(*what: Any) -> None:
    """Print at once, in one piece."""
    os.write(1, (json.dumps(what) + "\n").encode())


def listen() -> None:
    """Receive events in the background, read `k` all the time, and print its value when it changes."""
    from django.core.cache import cache

    from resty_django import events

    events.start()
    last = None
    say("ready")
    while True:
        value = cache.get("k")
        if value != last:
            last = value
            say("now", value)
        time.sleep(0.001)


def requests() -> None:
    """For each line of the input, print the value of `k` without and with a request through the middleware."""
    from django.core.cache import cache
    from django.http import HttpRequest, HttpResponse

    from resty_django.cache.middleware import UpdateMiddleware

    view = UpdateMiddleware(lambda request: HttpResponse(str(cache.get("k"))))
    say("got", view(HttpRequest()).content.decode())
    for _ in sys.stdin:
        say("before", str(cache.get("k")))
        say("got", view(HttpRequest()).content.decode())


def count(times: int, twins: bool) -> None:
    """Wait for a line of the input, then increment `n` this number of times."""
    from django.core.cache import cache

    async def adding() -> None:
        for _ in range(times):
            await cache.aincr("n")

    say("ready")
    sys.stdin.readline()
    if twins:
        asyncio.run(adding())
    else:
        for _ in range(times):
            cache.incr("n")
    say("through")


def race(twins: bool) -> None:
    """For each line of the input, try to be the first process that adds this key."""
    from django.core.cache import cache

    say("ready")
    for line in sys.stdin:
        key = line.strip()
        won = asyncio.run(cache.aadd(key, os.getpid())) if twins else cache.add(key, os.getpid())
        say("tried", key, won)


def load(twins: bool) -> None:
    """For each line of the input, print the value of this key, loaded from a slow source if it is missing."""
    from django.core.cache import cache

    say("ready")
    for line in sys.stdin:
        key = line.strip()

        def source(key: str = key) -> int:
            cache.incr(f"loads-of-{key}", ttl=100)  # type: ignore[call-arg]
            time.sleep(0.2)
            return os.getpid()

        say("got", asyncio.run(cache.aget_or_set(key, source)) if twins else cache.get_or_set(key, source))


def objects() -> None:
    """For each line of the input, print the value of this key, and store an object under `back`."""
    from django.core.cache import cache

    say("ready")
    for line in sys.stdin:
        say("got", repr(cache.get(line.strip())))
        cache.set("back", {"price": Decimal("1.50")})
        say("stored")


def main(what: str, options: dict[str, Any]) -> None:
    import django
    from django.conf import settings

    site = json.loads(os.environ["RESTY_WORKER_SITE"])
    settings.configure(INSTALLED_APPS=["resty_django", "resty_django.cache"], **site)
    django.setup()
    tasks = {"listen": listen, "requests": requests, "count": count, "race": race, "objects": objects, "load": load}
    tasks[what](**options)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
