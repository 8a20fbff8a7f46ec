"""Tasks of a shop whose orders are database rows."""

from __future__ import annotations

from resty_django.qless import task


@task(queue="orders")
def book(order: int) -> None: ...


@task(queue="orders")
def ship(order: int, part: int) -> None: ...


@task(queue="orders")
def notify(order: int) -> None: ...


@task(queue="orders", unique=True)
def remind() -> None: ...
