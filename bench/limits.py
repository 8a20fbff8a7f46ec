"""Decisions of limits against their stores and against the package `limits`, side by side in one run.

    python bench/limits.py [--quick] [--seconds S] [--rounds N] [--only lmdb,redis] [--json FILE]

LMDB: a decision of each algorithm through its class, and three combined, against a bare read-modify-write of py-lmdb
(rmw), and `limits` in the memory of its process; against that, also a limiter with a `LocalStore`. Redis: the same
against an EVALSHA of the same script, sent by redis-py alone, and against `limits` on the same Redis, an embedded
Valkey on this machine, over TCP. `limits` runs in a separate process; it is left out if the first run has no network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _dictwriter import NUMBER, bare_environment, shared_dictionary
from _table import Options, Row, Run, compare, configure, installed, main, measure, timed
from shdict import on_redis

PLENTY = 10**9
TURNS = 30
"""Short ones, so that other work on the machine spoils few of them."""
SLOT, THREE = "slot with lease", "three combined"
LOCAL = "fixed window, LocalStore"
DEAREST = "the dearest of the three"
SINGLE = ("leaky bucket", "fixed window", "slot without lease")
"""The ones that `THREE` combines."""


class Peer:
    """The process of `limits`, and its subjects."""

    def __init__(self, options: Options) -> None:
        packages = installed(options, "limits", "redis")
        command = [sys.executable, "-P", str(Path(__file__).with_name("_limitspeer.py")), options.url]
        env = {**os.environ, "PYTHONPATH": str(packages)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.asking, self.answers = self.process.stdin, self.process.stdout
        self.names: list[str] = json.loads(self.answers.readline())

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *args: object) -> None:
        self.asking.close()
        self.answers.close()
        self.process.wait(10)

    def ask(self, name: str, count: int) -> float:
        print(json.dumps([name, count]), file=self.asking, flush=True)
        return float(self.answers.readline())


def peer_subjects(options: Options, stack: ExitStack, store: str) -> dict[str, Run]:
    try:
        peer = stack.enter_context(Peer(options))
    except OSError as error:
        print(error, file=sys.stderr)
        return {}
    return {
        name: lambda count, name=name: peer.ask(name, count)  # type: ignore[misc]
        for name in peer.names
        if name.endswith(store)
    }


def limiters(dictionary: Any) -> dict[str, Any]:
    """Return a limiter of each algorithm, which refuses nothing."""
    from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket

    def options(name: str) -> dict[str, Any]:
        return {"store": dictionary, "prefix": f"{name}:", "on_error": "raise"}

    return {
        "leaky bucket": LeakyBucket(1e6, PLENTY, **options("leaky")),
        "fixed window": FixedWindow(PLENTY, 3600, **options("fixed")),
        "sliding window": SlidingWindow(PLENTY, 3600, **options("sliding")),
        "token bucket": TokenBucket.from_interval(1, PLENTY, **options("token")),
        SLOT: Concurrency(100, **options("slots")),
        "slot without lease": Concurrency(PLENTY, lease=None, **options("free")),
    }


def lmdb(options: Options) -> Iterator[Row]:
    from resty_django.limits import FixedWindow, LocalStore, combine

    env, db = bare_environment(options.folder)
    with env.begin(db, write=True) as txn:
        txn.put(b"n", NUMBER.pack(0))
    ours = shared_dictionary(options.folder)
    named = limiters(ours)
    bare = {"begin": env.begin, "db": db, "n": b"n", "pack": NUMBER.pack, "unpack": NUMBER.unpack}
    subjects: dict[str, Run] = {
        "bare rmw": timed("with begin(db, None, True) as txn:\n txn.put(n, pack(unpack(txn.get(n))[0] + 1))", **bare)
    }
    for name, limiter in named.items():
        subjects[name] = timed("hit('user:1234')", hit=limiter.hit)
    subjects[LOCAL] = timed("hit('user:1234')", hit=FixedWindow(PLENTY, 3600, store=LocalStore()).hit)
    hit, leaving = named[SLOT].hit, named[SLOT].leaving
    subjects[SLOT] = timed("leaving('user:1234', None, hit('user:1234').token)", hit=hit, leaving=leaving)
    three = [named[name] for name in SINGLE]
    subjects[THREE] = timed("combine(three, keys)", combine=combine, three=three, keys=["user:1234"] * 3)
    with ExitStack() as stack:
        stack.callback(env.close)
        stack.callback(ours.close)
        subjects |= peer_subjects(options, stack, "memory")
        samples = measure(subjects, options, TURNS)
    samples[SLOT] = [took / 2 for took in samples[SLOT]]  # one call takes the slot, and one returns it
    samples[DEAREST] = list(map(max, *(samples[name] for name in SINGLE)))
    comparisons = (
        *((name, "bare rmw", {SLOT: "<= 4", "leaky bucket": "<= 2.9"}.get(name, "<= 3")) for name in named),
        (THREE, "bare rmw"),
        (THREE, DEAREST, "<= 1.8"),
        ("fixed window", "limits fixed window, memory", "<= 1"),
        ("limits fixed window, memory", LOCAL),
        ("sliding window", "limits sliding window, memory"),
    )
    yield from compare(samples, comparisons, prefix="LMDB, ")


def redis(options: Options) -> Iterator[Row]:
    from resty_django.limits import combine
    from resty_django.redis import connection
    from resty_django.shdict.redis import RedisDict

    named = limiters(RedisDict("bench"))
    slots, three = named[SLOT], [named[name] for name in SINGLE]

    def take_and_leave() -> None:
        slots.leaving("user:1234", None, slots.hit("user:1234").token)

    calls: dict[str, Callable[[], Any]] = {
        **{name: lambda limiter=limiter: limiter.hit("user:1234") for name, limiter in named.items()},  # type: ignore[misc]
        SLOT: take_and_leave,
        THREE: lambda: combine(three, ["user:1234"] * 3),
    }
    subjects = on_redis(connection("default"), calls)
    with ExitStack() as stack:
        subjects |= peer_subjects(options, stack, "Redis")
        samples = measure(subjects, options, TURNS)
    comparisons = (
        *((name, f"{name}, bare", "<= 1.15") for name in named),
        (THREE, f"{THREE}, bare"),
        ("leaky bucket", "plain EVALSHA"),
        *((name, f"limits {name}, Redis", "<= 1") for name in ("fixed window", "sliding window")),
        ("limits fixed window, Redis", "fixed window"),
    )
    yield from compare(samples, comparisons, prefix="Redis, ")


if __name__ == "__main__":
    main(
        {"lmdb": lmdb, "redis": redis},
        lambda options: configure(
            CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": options.url}}
        ),
    )
