"""Health probes of a site: its settings, its databases, its caches on Redis or Valkey."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from django.core.cache import caches as cache_handler
from django.db import connections

from resty_django import extras
from resty_django.checks import check_settings
from resty_django.health import Finding, described


def settings() -> Iterator[Finding]:
    """Yield everything that the system checks say about `RESTY_DJANGO`."""
    messages = check_settings()
    for message in messages:
        level = "error" if message.is_serious() else "warning"
        yield Finding(level, str(message.id), str(message.msg))  # type: ignore[arg-type]
    if not messages:
        yield Finding("ok", "RESTY_DJANGO", "The settings are right.")


def databases() -> Iterator[Finding]:
    """Yield whether each alias in `DATABASES` answers a query."""
    for alias in connections:
        yield _timed(f"database {alias}", lambda alias=alias: _ask_database(alias))  # type: ignore[misc]


def caches() -> Iterator[Finding]:
    """Yield whether the server behind each Redis cache alias in `CACHES` answers PING; other caches have no server."""
    for alias in cache_handler.settings:
        try:
            with extras.needed(f"CACHES[{alias!r}] needs"):
                ping = _ping_of(cache_handler[alias])
        except Exception as error:  # one cache that cannot be made hides no other
            text = str(error) if isinstance(error, extras.MissingExtra) else described(error)
            yield Finding("error", f"cache {alias}", f"It cannot be used: {text}")
            continue
        if ping is not None:
            yield _timed(f"cache {alias}", ping)


def _ask_database(alias: str) -> None:
    connection = connections[alias]
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def _ping_of(cache: Any) -> Callable[[], object] | None:
    """Return `PING` through the client of django-redis, or of Django's own Redis backend: both have a `get_client`.

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
