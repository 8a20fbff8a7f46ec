"""The store of events behind its circuit breaker: polls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from resty_django.events import runtime
from resty_django.events.errors import Unavailable

from .breaker import StoreBreaker, breaker_of


def events_breaker() -> StoreBreaker:
    """Return the breaker of the store of events."""
    channel, _ = runtime.configured_channel()
    return breaker_of(channel.dictionary)


@contextmanager
def polling() -> Iterator[None]:
    """Wrap a poll. Raise `resty_django.events.Unavailable` at once while the store is down."""
    breaker = events_breaker()
    tries = breaker.reads_down
    if tries and breaker.is_open():
        raise Unavailable(str(breaker.bypassed()))
    try:
        yield
    except Unavailable as error:
        breaker.fail(error, reading=True)
        raise
    if tries:
        breaker.recover()
