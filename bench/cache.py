"""Caches of one process and of many, side by side in one run.

    python bench/cache.py [--quick] [--seconds S] [--rounds N] [--only levels,tags,backends,writes,decorators,bulk]

Levels: `MLCache.get` with a hit of L1 against the smallest LRU with a time to live that Python allows and against
other caches in the process, and with a hit of L2 in memory (LMDB) against caches of all processes of a machine; what
`update()` costs in a request; the twin. Tags: what two tags cost. Backends: the backend for Django on Redis without
L1, against django-redis on the same server, also async, and with hits of L1 against locmem, which returns copies,
too. Writes: `set` and `delete`, with the invalidation in other processes, against `set` of the dictionary without it;
the backend for Django against locmem; posting an event against its write transaction on py-lmdb, all in processor
time. Decorators: what a hit of `@cached` costs on top of the function, against `cachetools.cached` with a lock, and a
hit of `@cache_view` against Django's `cache_page` over locmem. Bulk: many keys in Redis against one. The Redis is an
embedded Valkey on this machine, over TCP.
"""

from __future__ import annotations

import functools
import importlib
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from _dictwriter import bare_environment
from _table import (
    Options,
    Row,
    Run,
    awaited,
    compare,
    configure,
    importable,
    less,
    main,
    measure,
    peer_caches,
    timed,
    to_all,
)

BACKEND = "resty_django.cache.backend.MLCacheBackend"
BARE_APPEND = """\
with begin(db, None, True) as txn:
    cursor = txn.cursor()
    number = int.from_bytes(cursor.key()) + 1 if cursor.last() else 1
    txn.put(pack(number), b'{"source":"orders","event":"paid","data":{"id":7},"unique":null,"pid":12345}', append=True)
    txn.delete(pack(max(0, number - 10_000)))
"""
"""The write transaction of an event without our layer, of which the last 10,000 are kept."""
KEY = "product:1234"
VALUE = {"id": 1234, "name": "Assam, second flush", "price": 17.5, "stock": 42}
ITEMS = 1000


class Smallest:
    """A minimal LRU with a time to live."""

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


def prepare(options: Options) -> None:
    importable(options, "cachetools", "cachebox", "cashews", "diskcache")
    dictionaries = {name: {"PATH": str(options.folder / "dicts")} for name in ("default", "events", "pages")}
    configure(
        ALLOWED_HOSTS=["testserver"],
        CACHES=peer_caches(options)
        | {
            "ours": {"BACKEND": BACKEND, "LOCATION": "pages"},
            "ours-redis": {"BACKEND": BACKEND, "LOCATION": "remote", "OPTIONS": {"LRU_SIZE": 0}},
        },
        RESTY_DJANGO={"SHARED_DICTS": {**dictionaries, "remote": {"ENGINE": "redis", "ALIAS": "django-redis"}}},
    )
    from django.core.cache import caches

    for alias in ("locmem", "file", "redis", "django-redis", "ours-redis"):
        caches[alias].set(KEY, VALUE, 3600)


def load(key: str) -> Any:
    return VALUE


def cache_of(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a new cache with a key, and names for statements: `drop(name)` deletes the key in L2 without an event."""
    from resty_django.cache import LRU, MLCache
    from resty_django.shdict import shdicts

    ours = MLCache(name, lru=LRU(ITEMS))
    ours.get(KEY, load, KEY, ttl=3600)
    names = {"ours": ours, "KEY": KEY, "VALUE": VALUE, "load": load, "forget": ours.lru.delete}
    return ours, names | {"drop": shdicts["default"].delete, "name": f"{name}:{KEY}"}


def of_peers(options: Options) -> dict[str, Any]:
    """Return the stores of packages, which are like dictionaries."""
    return {
        "cachetools": importlib.import_module("cachetools").TTLCache(ITEMS, 3600),
        "cachebox": importlib.import_module("cachebox").TTLCache(ITEMS, 3600),
        "diskcache": importlib.import_module("diskcache").Cache(str(options.folder / "diskcache")),
    }


def cashews() -> Any:
    cache = importlib.import_module("cashews").Cache()
    cache.setup("mem://", size=ITEMS)
    return cache


def levels(options: Options) -> Iterator[Row]:
    from django.core.cache import caches

    from resty_django.cache import LRU

    smallest, (ours, names), lru, memory = Smallest(ITEMS), cache_of("bench"), LRU(ITEMS), cashews()
    for item in range(ITEMS):
        smallest.set(f"product:{item}", VALUE, 3600)
        ours.get(f"product:{item}", load, item, ttl=3600)
    smallest.set(KEY, VALUE, 3600)
    lru.set(KEY, VALUE, 3600)
    cached = functools.lru_cache(maxsize=ITEMS)(load)
    hit, l2, fresh = "MLCache.get, L1 hit", "MLCache.get, L2 hit", "MLCache.get, L3"
    forgotten, lost = "forgetting in L1", "forgetting, L1 and L2"
    subjects: dict[str, Run] = {
        hit: timed("ours.get(KEY, load, KEY)", **names),
        "MLCache.get, L1 hit, with a ttl": timed("ours.get(KEY, load, KEY, ttl=60)", **names),
        "MLCache.lookup, L1 hit": timed("ours.lookup(KEY, load, KEY)", **names),
        "MLCache.aget, L1 hit": awaited(lambda: ours.aget(KEY, load, KEY)),
        "smallest LRU": timed("smallest.get(KEY)", smallest=smallest, KEY=KEY),
        "LRU of this package": timed("lru.get(KEY)", lru=lru, KEY=KEY),
        "functools.lru_cache (no ttl)": timed("cached(KEY)", cached=cached, KEY=KEY),
        "cashews": awaited(lambda: memory.get(KEY)),
        forgotten: timed("forget(KEY)", **names),
        l2: timed("forget(KEY); ours.get(KEY, load, KEY)", **names),
        lost: timed("forget(KEY); drop(name)", **names),
        fresh: timed("forget(KEY); drop(name); ours.get(KEY, load, KEY)", **names),
    }
    for name, store in of_peers(options).items():
        store[KEY] = VALUE
        subjects[name] = timed("store.get(KEY)", store=store, KEY=KEY)
    for name in ("Django locmem", "Django file", "Django redis", "django-redis"):
        subjects[f"{name}, get"] = timed("cache.get(KEY)", cache=caches[name.removeprefix("Django ")], KEY=KEY)
    awaited(lambda: memory.set(KEY, VALUE, expire=3600))(1)
    ours.update()
    samples = measure(subjects, options)
    samples |= measure({"MLCache.update, nothing new": timed("ours.update()", **names)}, options)
    samples[l2] = less(samples, l2, forgotten)
    samples[fresh] = less(samples, fresh, lost)
    comparisons = (
        (hit, "smallest LRU", "<= 2"),
        *((name, hit) for name in subjects if "L1 hit, " in name or name.endswith(("lookup, L1 hit", "aget, L1 hit"))),
        ("MLCache.update, nothing new", hit),
        ("Django locmem, get", hit, ">= 5"),
        *((name, hit) for name in ("LRU of this package", "functools.lru_cache (no ttl)", "cashews")),
        *((name, hit) for name in ("cachetools", "cachebox")),
        (l2, hit),
        (fresh, l2),
        *((name, l2) for name in ("Django locmem, get", "Django file, get", "diskcache")),
        ("django-redis, get", hit, ">= 200"),
        ("django-redis, get", l2, ">= 15"),
    )
    yield from compare(samples, comparisons)


def tags(options: Options) -> Iterator[Row]:
    """Compare a `set`, an L1 hit, an L2 hit with and without two tags."""
    ours, names = cache_of("tags")
    tagged, tag_names = f"{KEY}:tagged", ("product:1234", "shop:3")
    ours.set(tagged, VALUE, tags=tag_names, ttl=3600)
    subjects: dict[str, Run] = {"invalidate_tags, 1 tag": timed('ours.invalidate_tags("shop:4")', **names)}
    for title, key, extra in (("", KEY, ""), (", 2 tags", tagged, ", tags=tag_names")):
        here = names | {"key": key, "tag_names": tag_names}
        subjects[f"set{title}"] = timed(f"ours.set(key, VALUE, ttl=3600{extra})", **here)
        subjects[f"get, L1 hit{title}"] = timed("ours.get(key, load, KEY)", **here)
        subjects[f"forgetting{title}"] = timed("forget(key)", **here)
        subjects[f"get, L2 hit{title}"] = timed("forget(key); ours.get(key, load, KEY)", **here)
    samples = measure(subjects, options)
    for title in ("", ", 2 tags"):
        samples[f"get, L2 hit{title}"] = less(samples, f"get, L2 hit{title}", f"forgetting{title}")
    pairs = [(f"{name}, 2 tags", name) for name in ("set", "get, L1 hit", "get, L2 hit")]
    yield from compare(samples, [*pairs, ("invalidate_tags, 1 tag", "set")], prefix="tags, ")


def backends(options: Options) -> Iterator[Row]:
    from django.core.cache import caches

    named = {"Django backend on Redis": "ours-redis", "django-redis": "django-redis", "Django redis": "redis"}
    for call, text in (
        ("get", "cache.get(KEY)"),
        ("set", "cache.set(KEY, VALUE, 3600)"),
        ("add", "cache.add(KEY, VALUE, 3600)"),
    ):
        subjects = {
            f"{name}, {call}": timed(text, cache=caches[at], KEY=KEY, VALUE=VALUE) for name, at in named.items()
        }
        ours, theirs, django = subjects
        yield from compare(measure(subjects, options), ((ours, theirs, "<= 1.1"), (theirs, ours), (ours, django)))
    subjects = {
        f"{name}, aget": awaited(lambda cache=caches[at]: cache.aget(KEY))  # type: ignore[misc]
        for name, at in named.items()
    }
    yield from compare(measure(subjects, options), to_all(list(subjects)[1:], next(iter(subjects))))
    caches["ours"].set(KEY, VALUE, 3600)
    memory = {"Django locmem, get": "locmem", "Django backend, get, L1 hit": "ours"}
    subjects = {name: timed("cache.get(KEY)", cache=caches[at], KEY=KEY) for name, at in memory.items()}
    yield from compare(measure(subjects, options), [tuple(memory)])


def writes(options: Options) -> Iterator[Row]:
    from django.core.cache import caches

    from resty_django import events
    from resty_django.shdict import shdicts

    env, db = bare_environment(options.folder)
    (ours, names), clock, memory = cache_of("writes"), time.process_time, cashews()
    ours.update()
    bare = {"begin": env.begin, "db": db, "pack": struct.Struct(">Q").pack}
    shared = "dictionary, set"
    subjects: dict[str, Run] = {
        "bare append": timed(BARE_APPEND, clock, **bare),
        "post of an event": timed("post('orders', 'paid', {'id': 7})", clock, post=events.post),
        shared: timed("shared.set(KEY, VALUE, 3600)", clock, shared=shdicts["default"], **names),
        "MLCache.set": timed("ours.set(KEY, VALUE)", clock, **names),
        "MLCache.delete": deletions(ours, shdicts["default"]),
        "cashews, set": awaited(lambda: memory.set(KEY, VALUE, expire=3600)),
    }
    for name, alias in (("Django backend", "ours"), ("Django locmem", "locmem"), ("Django file", "file")):
        subjects[f"{name}, set"] = timed("cache.set(KEY, VALUE, 3600)", clock, cache=caches[alias], **names)
    for name, store in of_peers(options).items():
        subjects[f"{name}, set"] = timed("store[KEY] = VALUE", clock, store=store, **names)
    try:
        samples = measure(subjects, options)
    finally:
        env.close()
    comparisons = (
        ("MLCache.set", shared, "<= 4"),
        ("MLCache.delete", shared, "<= 4"),
        ("Django backend, set", "Django locmem, set", "<= 4"),
        ("post of an event", "bare append", "<= 4"),
        *(
            (f"{name}, set", "MLCache.set")
            for name in ("Django file", "cachetools", "cachebox", "cashews", "diskcache")
        ),
    )
    yield from compare(samples, comparisons)


def deletions(ours: Any, dictionary: Any) -> Run:
    """Delete keys that exist."""

    def run(count: int) -> float:
        keys = [f"{KEY}:{at}" for at in range(min(count, ITEMS))]
        for key in keys:
            dictionary.set(f"{ours.name}:{key}", VALUE, 3600)
        began = time.process_time()
        for key in keys:
            ours.delete(key)
        return (time.process_time() - began) * count / len(keys)

    return run


def decorators(options: Options) -> Iterator[Row]:
    from django.http import HttpRequest, HttpResponse
    from django.test import RequestFactory
    from django.views.decorators.cache import cache_page

    from resty_django.cache import cache_view, cached

    def load_product(number: int, language: str = "en") -> Any:
        return VALUE

    def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("tea " * 1000)

    cache, _ = cache_of("decorated")
    cachetools = importlib.import_module("cachetools")
    decorated: dict[str, Callable[..., Any]] = {
        "@cached": cached(cache, name="load_product", ttl=3600)(load_product),
        "@cachetools.cached": cachetools.cached(cachetools.TTLCache(ITEMS, 3600), lock=threading.RLock())(load_product),
        "the function": load_product,
    }
    subjects: dict[str, Run] = {}
    for arguments in ("(7)", "(7, language='de')"):
        for name, call in decorated.items():
            subjects[name + arguments] = timed(f"call{arguments}", call=call)
    request = RequestFactory().get("/products/")
    for name, view in {"@cache_view": cache_view(3600, cache)(page), "@cache_page": cache_page(3600)(page)}.items():
        view(request)
        subjects[f"{name}, a hit"] = timed("view(request)", view=view, request=request)
    samples = measure(subjects, options)
    for name in samples:
        if name.startswith("@cache") and "(" in name:
            samples[name] = less(samples, name, f"the function{name[name.index('(') :]}")
    comparisons = [
        (f"@cached{arguments}", f"@cachetools.cached{arguments}", "<= 2") for arguments in ("(7)", "(7, language='de')")
    ]
    yield from compare(samples, [*comparisons, ("@cache_view, a hit", "@cache_page, a hit", "<= 0.6")])


def bulk(options: Options) -> Iterator[Row]:
    """Compare twenty keys in one call on Redis with one key."""
    from django.core.cache import caches

    from resty_django.shdict.redis import RedisDict

    values = {f"product:{at}": b"x" * 70 for at in range(20)}
    stores = {
        "dictionary": RedisDict("bulk", alias="django-redis"),
        "Django backend": caches["ours-redis"],
        "django-redis": caches["django-redis"],
    }
    subjects: dict[str, Run] = {}
    for name, store in stores.items():
        store.set_many(values, 3600)
        names = {"store": store, "values": values, "keys": list(values)}
        subjects[f"{name}, get"] = timed("store.get('product:7')", **names)
        subjects[f"{name}, get_many of 20"] = timed("store.get_many(keys)", **names)
        subjects[f"{name}, set_many of 20"] = timed("store.set_many(values, 3600)", **names)
    comparisons = [(f"{name}, get_many of 20", f"{name}, get", "<= 1.5") for name in list(stores)[:2]]
    for call in ("get_many of 20", "set_many of 20"):
        comparisons += [(f"{name}, {call}", f"django-redis, {call}", "") for name in list(stores)[:2]]
    yield from compare(measure(subjects, options), comparisons, prefix="Redis, ")


if __name__ == "__main__":
    parts = {"levels": levels, "tags": tags, "backends": backends, "writes": writes}
    main({**parts, "decorators": decorators, "bulk": bulk}, prepare)
