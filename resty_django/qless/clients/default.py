"""The client described by the settings: `resty_django.qless.client`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.processes.forks import after_fork

from .client import Client

_client: Client | None = None
_clock: Callable[[], float] = time.time


def default_client() -> Client:
    """Return the client of this process. It is recreated when a setting changes and after a fork."""
    global _client
    if _client is None:
        section = conf.qless
        _client = Client(
            section.url or section.alias,
            prefix=section.prefix,
            worker_name=section.worker_name,
            name="default",
            clock=_clock,
        )
    return _client


def use_clock(clock: Callable[[], float]) -> Callable[[], float]:
    """Make the client use another clock, for tests. Return the clock that it used before."""
    global _clock
    earlier, _clock = _clock, clock
    _forget()
    return earlier


class _Default:
    """A proxy for the default client. Code may keep a reference to it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(default_client(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(default_client(), name, value)

    def __repr__(self) -> str:
        return repr(default_client())


client = cast(Client, _Default())
"""The client of the site's settings."""


def _forget() -> None:
    global _client
    _client = None


on_change(_forget, SETTING, "CACHES")
after_fork(_forget)
