"""Shared dictionaries against what they stand on and against other stores, side by side in one run.

    python bench/shdict.py [--quick] [--seconds S] [--rounds N] [--only lmdb,two,redis,peers] [--json FILE]

LMDB: our calls against the same work on py-lmdb without our layer, and against django-redis and redis-py. Two: two
processes that write at once, writes a second of both together, ours against bare py-lmdb. Redis: each call of our
engine against the EVALSHA that it sends, sent by redis-py alone, and against a script that does a plain GET. Peers:
get, set and add-one of each store. The Redis is an embedded Valkey on this machine, over TCP.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _dictwriter import KINDS, NUMBER, bare_environment, shared_dictionary
from _table import Options, Row, Run, awaited, compare, configure, importable, main, measure, peer_caches, timed, to_all

ITEMS = 10_000
KEY, VALUE = "user:1234:name", "a text of about thirty bytes.."


def prepare(options: Options) -> None:
    configure(CACHES=peer_caches(options))


def lmdb(options: Options) -> Iterator[Row]:
    from django.core.cache import caches

    from resty_django.redis import connection
    from resty_django.shdict import Update

    env, db = bare_environment(options.folder)
    ours = shared_dictionary(options.folder)
    with env.begin(db, write=True) as txn:
        for item in range(ITEMS):
            txn.put(b"user:%d:name" % item, VALUE.encode())
        txn.put(b"n", NUMBER.pack(0))
    for item in range(ITEMS):
        ours.set(f"user:{item}:name", VALUE)
    ours.set("n", 0)
    caches["django-redis"].set(KEY, VALUE)
    bare = {"begin": env.begin, "db": db, "key": KEY.encode(), "n": b"n", "pack": NUMBER.pack, "unpack": NUMBER.unpack}
    names = {"ours": ours, "KEY": KEY, "VALUE": VALUE, "add": lambda value: Update(value + 1)}
    subjects: dict[str, Run] = {
        "bare read": timed("with begin(db) as txn:\n txn.get(key)", **bare),
        "get": timed("ours.get(KEY)", **names),
        "django-redis get": timed("cache.get(KEY)", cache=caches["django-redis"], KEY=KEY),
        "bare rmw": timed("with begin(db, None, True) as txn:\n txn.put(n, pack(unpack(txn.get(n))[0] + 1))", **bare),
        "incr": timed("ours.incr('n', 1)", **names),
        "update": timed("ours.update('n', add)", **names),
        "set": timed("ours.set(KEY, VALUE)", **names),
        "aset": awaited(lambda: ours.aset(KEY, VALUE)),
        "redis-py INCR": timed("client.incr('n')", client=connection("django-redis")),
    }
    comparisons = (
        ("get", "bare read", "<= 2.5"),
        ("incr", "bare rmw", "<= 2.5"),
        ("update", "bare rmw", "<= 2.5"),
        ("set", "bare rmw"),
        ("aset", "set", "<= 1.2"),
        ("django-redis get", "get", ">= 30"),
        ("redis-py INCR", "incr", ">= 12"),
        ("redis-py INCR", "update", ">= 12"),
    )
    try:
        yield from compare(measure(subjects, options), comparisons, prefix="LMDB, ")
    finally:
        ours.close()
        env.close()


def two(options: Options) -> Iterator[Row]:
    """Compare the writes of two processes, four turns of each kind in a round."""
    turns, length = options.rounds * 4, max(0.15, options.seconds)
    command = [sys.executable, str(Path(__file__).with_name("_dictwriter.py")), str(options.folder)]
    when = [str(time.time() + 2.0), str(turns), str(length)]
    writers = [subprocess.Popen([*command, key, *when], stdout=subprocess.PIPE) for key in ("a", "b")]
    first, second = (json.loads(writer.communicate()[0]) for writer in writers)
    writes = {kind: [sum(pair) for pair in zip(first[kind], second[kind], strict=True)] for kind in KINDS}
    rates = {kind: [sum(done[at : at + 4]) / 4 / length for at in range(0, turns, 4)] for kind, done in writes.items()}
    targets = (("incr", "bare", ">= 0.75"), ("update", "bare", ">= 0.6"))
    yield from compare(rates, targets, "a second", "two writers, ")


def redis(options: Options) -> Iterator[Row]:
    from resty_django.redis import connection
    from resty_django.shdict import Update
    from resty_django.shdict.redis import RedisDict

    client: Any = connection("django-redis")
    ours = RedisDict("bench", alias="django-redis")
    ours.set(KEY, VALUE)
    ours.set("n", 0)
    client.set("plain", VALUE)
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
        "update": lambda: ours.update(KEY, lambda value: Update(VALUE)),
    }
    samples = measure(on_redis(client, calls), options)
    comparisons = [(name, f"{name}, bare", "<= 1.25") for name in calls]
    yield from compare(samples, [*comparisons, ("get", "plain EVALSHA")], prefix="Redis, ")


def on_redis(client: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, Run]:
    """Return the calls; as "NAME, bare" the EVALSHAs that each sends, by redis-py alone; and one that does a GET."""
    plain = client.script_load("return redis.call('GET', KEYS[1])")
    subjects = {"plain EVALSHA": timed("client.evalsha(plain, 1, 'plain')", client=client, plain=plain)}
    for name, call in calls.items():
        call()
        sent = commands_of(client, call)
        subjects[name] = timed("call()", call=call)
        text = "\n".join(f"evalsha(*sent[{at}])" for at in range(len(sent)))
        subjects[f"{name}, bare"] = timed(text, evalsha=client.evalsha, sent=sent)
    return subjects


def commands_of(client: Any, call: Callable[[], Any]) -> list[tuple[Any, ...]]:
    """Return the arguments of the EVALSHAs that a call sends."""
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


def peers(options: Options) -> Iterator[Row]:
    from django.core.cache import caches

    from resty_django.redis import connection
    from resty_django.shdict.redis import RedisDict

    importable(options, "diskcache")
    ours, on_server = "shared dictionary, LMDB", "shared dictionary, Redis"
    stores: dict[str, Any] = {
        ours: shared_dictionary(options.folder),
        "Django locmem": caches["locmem"],
        "Django file": caches["file"],
        "diskcache": importlib.import_module("diskcache").Cache(str(options.folder / "diskcache")),
    }
    remote = {
        on_server: RedisDict("peers", alias="django-redis"),
        "Django redis": caches["redis"],
        "django-redis": caches["django-redis"],
        "redis-py": connection("django-redis"),
    }
    for reference, group in ((ours, stores), (on_server, remote)):
        for store in group.values():
            store.set(KEY, VALUE)
            store.set("n", 0)
        for call, text in (("get", "store.get(KEY)"), ("set", "store.set(KEY, VALUE)"), ("incr", "store.incr('n')")):
            subjects = {name: timed(text, store=store, KEY=KEY, VALUE=VALUE) for name, store in group.items()}
            yield from compare(measure(subjects, options), to_all(subjects, reference), prefix=f"{call}, ")
    stores["diskcache"].close()
    stores[ours].close()


if __name__ == "__main__":
    main({"lmdb": lmdb, "two": two, "redis": redis, "peers": peers}, prepare)
