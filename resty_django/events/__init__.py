"""Events between processes: each process receives all events in the same order.

from resty_django.events import on_event, post

@on_event("orders", "paid")
def forget_totals(data, event, source, pid):
    totals.pop(data["customer"], None)

post("orders", "paid", {"customer": 7})
"""

from __future__ import annotations

from .errors import (
    BadEvent,
    BadOption,
    EventError,
    NoRoom,
    NotConfigured,
    NotEncodable,
    Unavailable,
    UnknownEvent,
)
from .names import EventNames, event_list, events
from .runtime import (
    apoll,
    apost,
    astart,
    astop,
    configure,
    configured,
    on_event,
    poll,
    post,
    post_local,
    register,
    register_weak,
    running,
    start,
    stop,
    unregister,
)
from .wire import Event

__all__ = [
    "BadEvent",
    "BadOption",
    "Event",
    "EventError",
    "EventNames",
    "NoRoom",
    "NotConfigured",
    "NotEncodable",
    "Unavailable",
    "UnknownEvent",
    "apoll",
    "apost",
    "astart",
    "astop",
    "configure",
    "configured",
    "event_list",
    "events",
    "on_event",
    "poll",
    "post",
    "post_local",
    "register",
    "register_weak",
    "running",
    "start",
    "stop",
    "unregister",
]
