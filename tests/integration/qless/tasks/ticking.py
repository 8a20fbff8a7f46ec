"""A periodic task with a short interval."""

from __future__ import annotations

from resty_django.qless import task


@task(queue="ticks", every=0.3)
def tick() -> str:
    return "tick"
