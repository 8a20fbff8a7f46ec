"""Starts the listener with a web worker's first request: a thread under WSGI, a task of the loop under ASGI."""

from __future__ import annotations

import sys
from typing import Any

from asgiref.sync import async_to_sync
from django.core.signals import request_started

from resty_django.conf import conf
from resty_django.text import logger

from . import runtime

log = logger("resty_django.events")

_UID = "resty_django.events.autostart"


def connect() -> None:
    """Wait for the first request, if the settings allow it. May be called repeatedly."""
    request_started.connect(on_request, dispatch_uid=_UID)


def on_request(scope: object = None, **kwargs: Any) -> None:
    """Start listening. Log failures instead of raising, so that they do not affect the request."""
    if in_tests():
        return
    request_started.disconnect(dispatch_uid=_UID)
    try:
        if not conf.events.autostart:
            return
        if scope is None:
            runtime.start(wait=0)
        else:
            async_to_sync(runtime.astart)()  # runs in the loop that waits for this call
    except Exception:
        log.exception("This process cannot receive events")


def in_tests() -> bool:
    """Return whether a test runner has set up its environment; tests start listeners themselves."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")
