"""Whether this process can serve requests: its databases, Redis servers and shared dictionaries respond."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Final

from django.apps import apps
from django.core.cache import caches
from django.db import connections

from resty_django.concurrency import TimedCall, gather
from resty_django.conf import conf
from resty_django.health.site import ask_database, ping_of
from resty_django.shdict.facts import facts
from resty_django.text import logger

log = logger("resty_django.healthz")

MAX_AGE_SECONDS: Final = 1.0
"""Age up to which an answer is repeated, so that many requests cost as much as one."""
CHECK_SECONDS: Final = 1.0
"""Time limit for all checks together."""


class Readiness:
    """The answer for some `parts`, with the names of `CHECKS`. Safe in all threads."""

    def __init__(self, parts: Collection[str]) -> None:
        self._parts = tuple(parts)
        self._checking = threading.Lock()
        self._failures: Mapping[str, str] | None = None
        """Error messages by check; None before the first check."""
        self._expires_at = 0.0

    def is_ready(self) -> bool:
        """Return the last answer, or check again if that is too old.

        While one thread checks, the others return the last answer, so that a store that hangs does not hold them all.
        """
        if time.monotonic() >= self._expires_at and self._checking.acquire(blocking=self._failures is None):
            try:
                if time.monotonic() >= self._expires_at:  # no other thread has checked while this one waited
                    self._check()
            finally:
                self._checking.release()
        return not self._failures

    def _check(self) -> None:
        calls = [call for part in self._parts for call in CHECKS[part]()]
        replies = zip(calls, gather(calls, CHECK_SECONDS), strict=True)
        before, self._failures = self._failures or {}, {call.key: reply.error for call, reply in replies if reply.error}
        self._expires_at = time.monotonic() + MAX_AGE_SECONDS
        if before.keys() != self._failures.keys():
            if self._failures:
                log.error("not ready: %s", "; ".join(": ".join(failure) for failure in self._failures.items()))
            else:
                log.warning("ready again")


def _databases() -> Iterator[TimedCall]:
    for alias in connections:
        yield TimedCall(f"readiness of database {alias}", partial(ask_database, alias))


def _redis() -> Iterator[TimedCall]:
    for alias in caches.settings:
        yield TimedCall(f"readiness of cache {alias}", partial(_ping_cache, alias))
    if apps.is_installed("resty_django.qless") and conf.qless.url and not conf.qless.eager:
        yield TimedCall("readiness of jobs", partial(_ping_url, conf.qless.url))


def _dictionaries() -> Iterator[TimedCall]:
    yield TimedCall("readiness of dictionaries", _ask_dictionaries)


CHECKS: Final[Mapping[str, Callable[[], Iterator[TimedCall]]]] = {
    "databases": _databases,
    "redis": _redis,
    "dictionaries": _dictionaries,
}


def _ping_cache(alias: str) -> None:
    ping = ping_of(caches[alias])
    if ping is not None:
        ping()


def _ping_url(url: str) -> None:
    from resty_django.redis.source import ClientSource

    source = ClientSource(url)
    try:
        source.sync().ping()
    finally:
        source.close()


def _ask_dictionaries() -> None:
    for state in facts():
        if state.error is not None:
            raise state.error
