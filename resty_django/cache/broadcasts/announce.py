"""Broadcasts to other processes behind the circuit breaker of the store of events."""

from __future__ import annotations

from functools import partial

from resty_django.events.errors import NoRoom, Unavailable
from resty_django.sansio import Steps

from ..circuit_breaker.breaker import WRITE_FAULTS
from ..errors import ChannelFailed
from .channel import Broadcast, InvalidationChannel, to_broadcast
from .events import EventChannel, events_breaker


def announce(channel: InvalidationChannel, broadcast: Broadcast, on_error: str) -> Steps[None]:
    """Broadcast an event. If the store of events is down, do so when it answers again, unless `on_error` is "raise".

    Raise `ChannelFailed`.
    """
    if not isinstance(channel, EventChannel):
        yield from to_broadcast(channel, broadcast)
        return
    breaker = events_breaker()
    tries = breaker.down
    error: Exception
    if tries and breaker.is_open():
        error = breaker.bypassed()
        failed = ChannelFailed(f"could not broadcast the event {broadcast.channel!r}: {error}")
    else:
        try:
            yield from to_broadcast(channel, broadcast)
        except ChannelFailed as fault:
            if not isinstance(fault.__cause__, Unavailable | NoRoom):
                raise
            error, failed = fault.__cause__, fault
            breaker.fail(error, reading=False)
        else:
            if tries:
                breaker.recover()
            return
    if on_error == "raise":
        raise failed from error
    breaker.remember(error, broadcast, partial(channel.broadcast, *broadcast), hold=False)


def is_outage(failed: ChannelFailed) -> bool:
    """Return whether a channel failed because the store of events, or of its journal, is down."""
    return isinstance(failed.__cause__, WRITE_FAULTS)
