"""The probes of what every site has: its settings, databases, Redis or Valkey caches, shared dictionaries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from django.core.cache import caches as cache_handler
from django.db import connections
from django.template.defaultfilters import filesizeformat

from resty_django.checks import check_settings
from resty_django.health import Finding
from resty_django.shdict import Stats, shdicts
from resty_django.shdict.figures import quick_stats

KEEPS: Final = "default"
"""The dictionary whose items are not only cached: locks, counters and limits are in it unless a site says otherwise."""


def settings() -> Iterator[Finding]:
    """Everything that the system checks say about `RESTY_DJANGO`."""
    messages = check_settings()
    for message in messages:
        level = "error" if message.is_serious() else "warning"
        yield Finding(level, str(message.id), str(message.msg))  # type: ignore[arg-type]
    if not messages:
        yield Finding("ok", "RESTY_DJANGO", "The settings are right.")


def databases() -> Iterator[Finding]:
    """Whether each alias in `DATABASES` answers a query."""
    for alias in connections:
        yield _timed(f"database {alias}", lambda alias=alias: _ask_database(alias))  # type: ignore[misc]


def caches() -> Iterator[Finding]:
    """Whether the server behind each Redis cache alias in `CACHES` answers PING; other caches have no server."""
    for alias in cache_handler.settings:
        ping = _ping_of(cache_handler[alias])
        if ping is not None:
            yield _timed(f"cache {alias}", ping)


def dictionaries() -> Iterator[Finding]:
    """Whether each shared dictionary opens and answers, and how full it is.

    A dictionary that is full and throws out items is no fault where it is a cache, so that is told and not warned of.
    In the dictionary `default` it is a warning, since what was thrown out there may have been a lock or a counter.
    """
    for name in shdicts.names():
        subject = f"dictionary {name}"
        start = time.perf_counter()
        try:
            stats = quick_stats(shdicts[name])
        except Exception as error:
            yield Finding("error", subject, f"It cannot be used: {type(error).__name__}: {error}")
            continue
        text = f"It answers in {(time.perf_counter() - start) * 1000:.1f} ms; {_room(stats)}."
        if name == KEEPS and stats.forcible:
            text += " Locks, counters or limits may have been lost: raise its SIZE, or give caches one of their own."
        yield Finding("warning" if name == KEEPS and stats.forcible else "ok", subject, text)


def _room(stats: Stats) -> str:
    """What is in a dictionary and what is left of it, as far as it can tell."""
    parts = [] if stats.keys is None else [f"{stats.keys:,} keys"]
    free = filesizeformat(stats.free_space)
    parts.append(f"{free} of {filesizeformat(stats.capacity)} free" if stats.capacity else f"{free} free")
    if stats.forcible:
        parts.append(f"{stats.forcible:,} items were thrown out before their time since it was made")
    return ", ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def _ask_database(alias: str) -> None:
    connection = connections[alias]
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def _ping_of(cache: Any) -> Callable[[], object] | None:
    """`PING` through the client of django-redis, or of Django's own Redis backend: both have a `get_client`.

    Asked of the client and not of the cache, since django-redis may be told to ignore the errors of the server.
    """
    for attribute in ("client", "_cache"):
        get_client = getattr(getattr(cache, attribute, None), "get_client", None)
        if get_client is not None:
            return lambda: get_client(write=True).ping()
    return None


def _timed(subject: str, ask: Callable[[], object]) -> Finding:
    start = time.perf_counter()
    try:
        ask()
    except Exception as error:
        return Finding("error", subject, f"It does not answer: {type(error).__name__}: {error}")
    return Finding("ok", subject, f"It answers in {(time.perf_counter() - start) * 1000:.1f} ms.")
