"""Reception of the site's events, such as cache invalidations, in processes that run jobs."""

from __future__ import annotations

from resty_django import events
from resty_django.text import logger

log = logger("resty_django.qless.worker")


def start_events() -> bool:
    """Start receiving events from other processes. Return whether it has started."""
    try:
        events.start(wait=0)
    except Exception as error:  # jobs can run without events
        log.warning("events from other processes are not received: %s", error)
        return False
    return True
