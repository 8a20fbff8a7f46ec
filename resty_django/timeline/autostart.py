"""Hooks that note outages, and the version of a process when it begins to work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from django.core.signals import request_started

from resty_django import circuit_breaker
from resty_django.deferred import deferred
from resty_django.events.autostart import in_tests

_UID: Final = "resty_django.timeline.autostart"

record_outage = deferred("resty_django.timeline.log.record_outage")
record_deploy = deferred("resty_django.timeline.log.record_deploy")


def connect() -> None:
    """Wait for outages and for the first request. May be called repeatedly."""
    circuit_breaker.on_failure = on_failure
    circuit_breaker.on_recovery = on_recovery
    request_started.connect(on_request, dispatch_uid=_UID)


def on_failure(store: str, since: float, error: str) -> None:
    """Note that an outage has begun or lasts, without waiting for the store."""
    if not in_tests():
        in_background(partial(record_outage, store, since, time.time(), error, ended=False))


def on_recovery(store: str, since: float, error: str) -> None:
    """Note the end of an outage, without waiting for the store."""
    if not in_tests():
        in_background(partial(record_outage, store, since, time.time(), error, ended=True))


def on_request(**kwargs: Any) -> None:
    """Note the version of a web server's process, at its first request."""
    if not in_tests():
        request_started.disconnect(dispatch_uid=_UID)
        in_background(partial(record_deploy, "web"))


def start_in_worker() -> None:
    """Note the version of a worker process."""
    in_background(partial(record_deploy, "worker"))


def in_background(function: Callable[[], object]) -> None:
    """Call the function in a thread; not at all if the interpreter ends."""
    with suppress(RuntimeError):
        threading.Thread(target=function, name="resty-timeline", daemon=True).start()
