"""Health probe for events, for `manage.py resty_check`."""

from __future__ import annotations

import time
from collections.abc import Iterator

from resty_django.conf import conf
from resty_django.health import Finding
from resty_django.shdict import SharedDictError, shdicts

from .channel import channel_of


def probe() -> Iterator[Finding]:
    """Yield a finding that says whether events can be read."""
    settings = conf.events
    subject = f"dictionary {settings.dict}"
    started = time.perf_counter()
    try:
        channel_of(shdicts[settings.dict], settings.keep).last()
    except SharedDictError as error:
        yield Finding("error", subject, f"Events cannot be read: {error}")
    else:
        took = (time.perf_counter() - started) * 1000
        yield Finding("ok", subject, f"Events can be read; the store responded in {took:.1f} ms.")
