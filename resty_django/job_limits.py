"""The hook by which the job queue limits jobs. `resty_django.limits` provides the limits; neither imports the other."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from resty_django import ALL_APPS


class JobSlotProtocol(Protocol):
    """A slot for one job. `enter` returns None, or if the limit refuses the job, the seconds until the next attempt."""

    def enter(self) -> float | None: ...
    async def aenter(self) -> float | None: ...
    def leave(self) -> None: ...
    async def aleave(self) -> None: ...


class JobLimitProtocol(Protocol):
    """A limit of jobs."""

    def slot(self, key: object, wait: float | None) -> JobSlotProtocol:
        """Return a slot for a job that is counted under `key`. Entering it waits for up to `wait` seconds."""


class MakeLimit(Protocol):
    """Returns the limit of jobs by a limiter, or by the policy of this name.

    `location`: its place in the code. `key_kind`: the meaning of its keys. With `name`, which may be empty, the
    limit of this name by a rate such as "10/m", or by a policy.
    """

    def __call__(self, source: object, location: str, key_kind: str | None, name: str | None) -> JobLimitProtocol: ...


_makers: list[MakeLimit] = []


def provide(make: MakeLimit) -> None:
    """Let `make` make the limits of jobs."""
    _makers.append(make)


def job_limit(source: object, location: str, key_kind: str | None = None, name: str | None = None) -> JobLimitProtocol:
    """Return a limit of jobs, see `MakeLimit`."""
    if not _makers:  # the app that provides limits is not in INSTALLED_APPS: the import of its package is enough
        for app in ALL_APPS:
            import_module(app)
    return _makers[-1](source, location, key_kind, name)
