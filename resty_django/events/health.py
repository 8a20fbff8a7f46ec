"""What `manage.py resty_check` says of the events."""

from __future__ import annotations

import time
from collections.abc import Iterator

from resty_django import health
from resty_django.conf import conf
from resty_django.health import Finding
from resty_django.shdict import SharedDictError, shdicts

from .channel import channel_of


def register() -> None:
    """Register the probe `events`."""
    health.register("events", probe)


def probe() -> Iterator[Finding]:
    """Whether what carries the events answers."""
    settings = conf.events
    subject = f"dictionary {settings.dict}"
    started = time.perf_counter()
    try:
        channel_of(shdicts[settings.dict], settings.keep).last()
    except SharedDictError as error:
        yield Finding("error", subject, f"Events cannot be read: {error}")
    else:
        took = (time.perf_counter() - started) * 1000
        yield Finding("ok", subject, f"Events can be read; the last one was found in {took:.1f} ms.")


__all__ = ["probe", "register"]
