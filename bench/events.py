"""Events against publish and subscribe of redis-py, and a listener without events against a loop that only sleeps.

    python bench/events.py [--quick] [--seconds S] [--rounds N] [--json FILE]

p50, p99: from posting in one process to the handler in another, 400 messages at random moments (`--quick`: 100); in
memory at an interval of 10 ms, by Redis, and by publish and subscribe. Idle: processor time of a process that listens
while nothing is posted, as a share of a core. Post: microseconds of the call. The Redis is an embedded Valkey on this
machine, over TCP. Linux only.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _eventlistener import CHANNEL
from _eventlistener import configure as configure_listener
from _table import Options, Row, Samples, compare, main, row

Site = dict[str, Any]
Figures = dict[str, float]
PUBSUB = "redis-py pubsub"


class Listener:
    """A process that hears."""

    def __init__(self, site: Site, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("_eventlistener.py")), *arguments],
            env={**os.environ, "BENCH_SITE": json.dumps(site)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self, messages: int = 0) -> dict[str, Any]:
        output, _ = self.process.communicate(str(messages))
        report: dict[str, Any] = json.loads(output)
        return report


def site_of(url: str, folder: str, engine: str, interval: float) -> Site:
    dictionary = {"ENGINE": "redis"} if engine == "redis" else {"PATH": folder}
    return {
        "CACHES": {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
        "RESTY_DJANGO": {"SHARED_DICTS": {"events": dictionary}, "EVENTS": {"INTERVAL": interval}},
    }


def latency(listener: Listener, send: Callable[[], None], count: int, chance: random.Random) -> Figures:
    costs = []
    for _ in range(count):
        time.sleep(chance.uniform(0.002, 0.015))
        began = time.perf_counter()
        send()
        costs.append(time.perf_counter() - began)
    took = sorted(listener.end(count)["took"])
    if len(took) != count:
        raise SystemExit(f"{len(took)} of {count} messages were heard")
    return {
        "p50": took[count // 2] * 1e3,
        "p99": took[count * 99 // 100] * 1e3,
        "post": statistics.median(costs) * 1e6,
    }


def idle(listener: Listener, seconds: float) -> Figures:
    time.sleep(seconds)
    return {"cpu": listener.end()["cpu"] * 100}


def measure(options: Options) -> dict[str, Samples]:
    """Return the samples of each subject, by figure."""
    import redis
    from django.test import override_settings

    from resty_django import events

    chance = random.Random(3)
    url, folder = options.url, str(options.folder)
    sites = {
        "memory, 10 ms": site_of(url, folder, "lmdb", 0.01),
        "redis": site_of(url, folder, "redis", 0.01),
    }
    client = redis.Redis.from_url(url)
    idles = {
        "idle, memory, 10 ms": ("events", sites["memory, 10 ms"]),
        "idle, sleep of 10 ms": ("sleep 0.01", {}),
        "idle, memory, 5 ms": ("events", site_of(url, folder, "lmdb", 0.005)),
        "idle, sleep of 5 ms": ("sleep 0.005", {}),
        "idle, redis": ("events", sites["redis"]),
        "idle, pubsub": ("pubsub", sites["redis"]),
    }
    samples: dict[str, Samples] = {}

    def note(name: str, figures: Figures) -> None:
        for figure, value in figures.items():
            samples.setdefault(figure, {}).setdefault(name, []).append(value)

    count = 100 if options.quick else 400
    for _ in range(options.rounds):
        for name, site in sites.items():
            with override_settings(**site):
                heard = Listener(site, "events")
                note(name, latency(heard, lambda: events.post(CHANNEL, "e", time.monotonic()), count, chance))
        heard = Listener(sites["redis"], "pubsub")
        note(PUBSUB, latency(heard, lambda: client.publish(CHANNEL, str(time.monotonic())), count, chance))
        for name, (arguments, site) in idles.items():
            note(name, idle(Listener(site, *arguments.split()), options.seconds))
    client.close()
    return samples


def listeners(options: Options) -> Iterator[Row]:
    samples = measure(options)
    for figure, unit in (("p50", "ms"), ("p99", "ms"), ("post", "us")):
        yield from compare(samples[figure], (("redis", PUBSUB),), unit, f"{figure}, ")
    yield row("p50, redis", samples["p50"]["redis"], None, "ms", "<= 2")
    yield row("p99, memory, 10 ms", samples["p99"]["memory, 10 ms"], None, "ms", "<= 25")
    shares = samples["cpu"]
    idle_pairs = (
        ("idle, memory, 10 ms", "idle, sleep of 10 ms"),
        ("idle, memory, 5 ms", "idle, sleep of 5 ms"),
        ("idle, redis", "idle, pubsub"),
    )
    yield from compare(shares, idle_pairs, "% of a core")
    for name, most in (("idle, memory, 10 ms", 0.1), ("idle, memory, 5 ms", 0.1), ("idle, redis", 1)):
        yield row(name, shares[name], None, "% of a core", f"<= {most}")


def prepare(options: Options) -> None:
    os.environ["BENCH_SITE"] = json.dumps(site_of(options.url, str(options.folder), "lmdb", 0.01))
    configure_listener()


if __name__ == "__main__":
    main({"listeners": listeners}, prepare, seconds=3.0)
