"""The hook by which the job queue limits jobs. `resty_django.limits` provides the limits; neither imports the other."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from resty_django import ALL_APPS


class JobSlot(Protocol):
    """A slot for one job. `enter` returns None, or if the limit refuses the job, the seconds until the next attempt."""

    def enter(self) -> float | None: ...
    async def aenter(self) -> float | None: ...
    def leave(self) -> None: ...
    async def aleave(self) -> None: ...


class JobLimit(Protocol):
    """A limit of jobs."""

    def slot(self, key: object, wait: float | None) -> JobSlot:
        """Return a slot for a job that is counted under `key`. Entering it waits for up to `wait` seconds."""


class JobLimits(Protocol):
    """A factory of limits. `location`: the place of the limit in the code."""

    def limit(self, source: Any, location: str, key_kind: str | None) -> JobLimit:
        """Return the limit by a limiter, or by the policy of this name. `key_kind`: the meaning of its keys."""

    def rate(self, rate: str | float, name: str, location: str) -> JobLimit:
        """Return the limit by a rate such as "10/m", or by the policy of this name. `name`: of the limit."""


def provide(provider: Callable[[], JobLimits]) -> None:
    """Let `provider` make the limits of jobs."""
    global _provider
    _provider = provider


def job_limits() -> JobLimits:
    """Return the factory of limits."""
    return _provider()


def _discovered() -> JobLimits:
    """Import the packages of all apps, one of which provides the limits: it may be missing in INSTALLED_APPS."""
    for app in ALL_APPS:
        import_module(app)
    return _provider()


_provider: Callable[[], JobLimits] = _discovered
