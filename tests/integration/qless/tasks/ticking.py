"""A task that comes by itself, soon."""

from __future__ import annotations

from resty_django.qless.task import task


@task(queue="ticks", every=0.3)
def tick() -> str:
    return "tick"
