"""Health probes for a site: its settings, its databases and its caches on Redis or Valkey."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.core.cache import caches as cache_handler
from django.db import connections

from resty_django import extras
from resty_django.checks import check_settings
from resty_django.health import Finding, Level, described


def settings() -> Iterator[Finding]:
    """Yield the messages of the system checks for `RESTY_DJANGO`."""
    messages = check_settings()
    for message in messages:
        level: Level = "error" if message.is_serious() else "warning"
        yield Finding(level, str(message.id), str(message.msg))
    if not messages:
        yield Finding("ok", "RESTY_DJANGO", "The settings are valid.")


def databases() -> Iterator[Finding]:
    """Yield, for each alias in `DATABASES`, whether it answers a query."""
    for alias in connections:
        yield _timed(f"database {alias}", partial(ask_database, alias))


def caches() -> Iterator[Finding]:
    """Yield, for each Redis cache in `CACHES`, whether its server answers PING. Other caches are skipped."""
    for alias in cache_handler.settings:
        try:
            with extras.needed(f"CACHES[{alias!r}] needs"):
                ping = ping_of(cache_handler[alias])
        except Exception as error:  # a cache that cannot be created must not hide the others
            text = str(error) if isinstance(error, extras.MissingExtra) else described(error)
            yield Finding("error", f"cache {alias}", f"The cache cannot be used: {text}")
            continue
        if ping is not None:
            yield _timed(f"cache {alias}", ping)


def ask_database(alias: str) -> None:
    connection = connections[alias]
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def ping_of(cache: Any) -> Callable[[], object] | None:
    """Return a function that sends PING through the client of django-redis or of Django's Redis backend.

    It uses the client rather than the cache, because django-redis can be configured to ignore server errors.
    """
    for attribute in ("client", "_cache"):
        get_client = getattr(getattr(cache, attribute, None), "get_client", None)
        if get_client is not None:
            return partial(_ping, get_client, keep=attribute == "client")
    return None


def _ping(get_client: Callable[..., Any], *, keep: bool) -> None:
    client = get_client(write=True)
    try:
        client.ping()
    finally:
        if not keep:  # Django has a pool for each thread, and does not close it when the thread ends
            client.connection_pool.disconnect()


def _timed(subject: str, ask: Callable[[], object]) -> Finding:
    start = time.perf_counter()
    try:
        ask()
    except Exception as error:
        return Finding("error", subject, f"It does not respond: {type(error).__name__}: {error}")
    return Finding("ok", subject, f"It responded in {(time.perf_counter() - start) * 1000:.1f} ms.")
