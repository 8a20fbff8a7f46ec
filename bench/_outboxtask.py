"""The task of outbox.py."""

from __future__ import annotations

from resty_django.qless import task


@task(queue="orders")
def send_invoice(order: int) -> None:
    pass
