"""A process that uses a cache, and prints a JSON list per event. Each function here is one of its tasks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import warnings
from typing import Any


def say(*what: Any) -> None:
    """Print at once, in one piece."""
    os.write(1, (json.dumps(what) + "\n").encode())


def the_cache(**options: Any) -> Any:
    from resty_django.cache import MLCache

    return MLCache("c", **options)


def storm(twins: bool, keys: int) -> None:
    """For each line of the input, read this number of cold keys; the source is slow, and counts its calls."""
    from resty_django.shdict import shdicts

    cache = the_cache()
    counts = shdicts["counts"]

    def source(key: str) -> str:
        counts.incr(key, 1, 0)
        time.sleep(0.05)
        return f"{key} of {os.getpid()}"

    async def asource(key: str) -> str:
        await counts.aincr(key, 1, 0)
        await asyncio.sleep(0.05)
        return f"{key} of {os.getpid()}"

    async def all_of(names: list[str]) -> None:
        for value in await asyncio.gather(*(cache.aget(name, asource, name) for name in names)):
            say("got", value)

    say("ready")
    for line in sys.stdin:
        names = [f"{line.strip()} {number}" for number in range(keys)]
        if twins:
            asyncio.run(all_of(names))
        else:
            for name in names:
                say("got", cache.get(name, source, name))
        say("through", line.strip())


def page(twins: bool) -> None:
    """For each line of the input, request the page with this path; the view is slow, and counts its runs."""
    from django.http import HttpRequest, HttpResponse
    from django.test import AsyncRequestFactory, RequestFactory

    from resty_django.cache import cache_view
    from resty_django.shdict import shdicts

    counts = shdicts["counts"]

    @cache_view(60)
    def view(request: HttpRequest) -> HttpResponse:
        counts.incr(request.path, 1, 0)
        time.sleep(0.1)
        return HttpResponse(f"{request.path} of {os.getpid()}")

    @cache_view(60)
    async def aview(request: HttpRequest) -> HttpResponse:
        await counts.aincr(request.path, 1, 0)
        await asyncio.sleep(0.1)
        return HttpResponse(f"{request.path} of {os.getpid()}")

    aview.__qualname__ = view.__qualname__  # the name of a view is part of the key of its pages
    aview.__wrapped__.__qualname__ = view.__wrapped__.__qualname__
    say("ready")
    for line in sys.stdin:
        path = line.strip()
        response = asyncio.run(aview(AsyncRequestFactory().get(path))) if twins else view(RequestFactory().get(path))
        say("page", path, response.status_code, response.content.decode())


def fail(twins: bool) -> None:
    """For each line of the input, read this key five times at once; the source is slow, counts its calls, and fails."""
    from concurrent.futures import ThreadPoolExecutor

    from resty_django.shdict import shdicts

    cache = the_cache(error_ttl=30)
    counts = shdicts["counts"]

    def source(key: str) -> None:
        counts.incr(key, 1, 0)
        time.sleep(0.3)
        raise ConnectionError("refused")

    async def asource(key: str) -> None:
        await counts.aincr(key, 1, 0)
        await asyncio.sleep(0.3)
        raise ConnectionError("refused")

    def get(key: str) -> None:
        try:
            cache.get(key, source, key)
        except Exception as error:
            say("error", key, f"{type(error).__name__}: {error}")

    async def aget(key: str) -> None:
        try:
            await cache.aget(key, asource, key)
        except Exception as error:
            say("error", key, f"{type(error).__name__}: {error}")

    async def five(key: str) -> None:
        await asyncio.gather(*(aget(key) for _ in range(5)))

    say("ready")
    for line in sys.stdin:
        key = line.strip()
        if twins:
            asyncio.run(five(key))
        else:
            with ThreadPoolExecutor(5) as threads:
                list(threads.map(get, [key] * 5))


def hang(**options: Any) -> None:
    """Run a callback that never returns."""

    def source() -> None:
        say("inside")
        time.sleep(1000)

    the_cache(**options).get("k", source)


def ask(**options: Any) -> None:
    """Read a key for each line of the input: `key value`."""
    from resty_django.cache import CacheError, LockTimeout

    cache = the_cache(**options)
    say("ready")
    for line in sys.stdin:
        key, value = line.split()
        began = time.monotonic()
        try:
            hit = cache.lookup(key, lambda loaded=value: loaded)
        except (CacheError, LockTimeout) as error:
            say("error", type(error).__name__, round(time.monotonic() - began, 3))
        else:
            say("hit", hit.value, int(hit.level))


def listen(**options: Any) -> None:
    """Receive events in the background, read `k` from L1 all the time, and print its value when it changes."""
    from resty_django import events

    cache = the_cache(**options)
    events.start()
    last = None
    say("ready")
    while True:
        value = cache.get("k")
        if value != last:
            last = value
            say("now", value)
        time.sleep(0.001)


def alisten(**options: Any) -> None:
    """Do the same as `listen` in a task of an event loop."""
    from resty_django import events

    async def main() -> None:
        cache = the_cache(**options)
        await events.astart()
        last = None
        say("ready")
        while True:
            value = await cache.aget("k")
            if value != last:
                last = value
                say("now", value)
            await asyncio.sleep(0.001)

    asyncio.run(main())


def write() -> None:
    """Store numbers one after the other until the end of the process."""
    cache = the_cache(ttl=1000)
    number = (cache.get("k") or 0) + 1
    while True:
        cache.set("k", number)
        if number % 100 == 1:
            say("wrote", number)
        number += 1


def fork() -> None:
    """Fork with values in L1, counts that were not flushed, and a process that listens."""
    from resty_django import events

    cache = the_cache()
    cache.get("k", lambda: "old")
    events.start()
    while cache.lookup("k").level != 1:  # the start of listening forgets
        time.sleep(0.01)
    for _ in range(5):
        cache.get("k")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks with threads about are what this is for
        pid = os.fork()
    if not pid:
        say("child", cache.get("k"), cache.lookup("k").level)
        while cache.get("k") == "old":
            time.sleep(0.005)
        say("child", cache.get("k"), 0)
        cache.set("k", "newest")
        cache.get("new", lambda: "of the child")
        say("child has", cache.stats().callbacks)
        os._exit(0)
    say("forked")
    sys.stdin.readline()
    cache.set("k", "new")
    while cache.get("k") != "newest":
        time.sleep(0.005)
    say("parent", "newest")
    os.waitpid(pid, 0)
    say("parent has", cache.stats().callbacks)


def main(what: str, options: dict[str, Any]) -> None:
    import django
    from django.conf import settings

    site = json.loads(os.environ["RESTY_WORKER_SITE"])
    settings.configure(INSTALLED_APPS=["resty_django", "resty_django.cache"], ALLOWED_HOSTS=["testserver"], **site)
    django.setup()
    calls = {
        "storm": storm,
        "page": page,
        "fail": fail,
        "hang": hang,
        "ask": ask,
        "write": write,
        "listen": listen,
        "alisten": alisten,
        "fork": fork,
    }
    calls[what](**options)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
