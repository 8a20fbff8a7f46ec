"""A module of tasks of which one is refused."""

from __future__ import annotations

from resty_django.qless import task


@task(queue="ticks", every=60, priority="high")  # type: ignore[call-overload]
def urgent() -> None: ...
