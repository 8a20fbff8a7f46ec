"""Health probe for events, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator

from resty_django.conf import conf
from resty_django.health import Finding
from resty_django.shdict import SharedDictError

from .runtime import lag


def probe() -> Iterator[Finding]:
    """Yield a finding that says whether events can be read."""
    subject = f"dictionary {conf.events.dict}"
    try:
        seconds = lag().seconds
    except SharedDictError as error:
        yield Finding("error", subject, f"Events cannot be read: {error}")
    else:
        yield Finding("ok", subject, f"Events can be read; the store responded in {seconds * 1000:.1f} ms.")
