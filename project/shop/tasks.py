"""What the shop does after an order is placed. Run by `manage.py runqless`."""

from __future__ import annotations

import logging
import time
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Sum
from django.urls import reverse

from project.shop.models import Order
from resty_django.qless import Job, QlessError, TaskContext, client, task
from resty_django.redis import StoreError

log = logging.getLogger("project.shop")

SECONDS_A_PIECE = 0.2
STOCK_OF_COCOA = 4


@task(retries=3, backoff=1, retry_on=OSError, timeout=30)
def write_invoice(order: int) -> str:
    """Write the invoice of an order into the folder `invoices`; gives the file. A second run writes the same."""
    placed = Order.objects.get(pk=order)
    folder = settings.VAR / "invoices"
    folder.mkdir(exist_ok=True)
    draft, file = folder / f"{placed.pk}.draft", folder / f"{placed.pk}.txt"
    lines = (f"Invoice {placed.invoice}", f"Order {placed.number}", f"{placed.quantity} x {placed.item}")
    draft.write_text("\n".join((*lines, f"Request {placed.txid}", "")))
    draft.replace(file)
    log.info("invoice %s is written", placed.invoice)
    return file.name


class OutOfStock(Exception):
    """There is not so much of an item."""


@task(bind=True, queue="packing", retries=1, backoff=5, tags=("parcel",))
def pack(self: TaskContext, order: int) -> str:
    """Pack an order, piece by piece; gives what is in the parcel. Of cocoa there is never enough for a large one."""
    placed = Order.objects.get(pk=order)
    if placed.item == "Cocoa" and placed.quantity > STOCK_OF_COCOA:
        raise OutOfStock(f"{placed.quantity} x Cocoa were ordered, and there are {STOCK_OF_COCOA}.")
    for piece in range(1, placed.quantity + 1):
        time.sleep(SECONDS_A_PIECE)
        self.update_progress(piece / placed.quantity, f"{piece} of {placed.quantity} pieces")
    return f"{placed.quantity} x {placed.item}"


@task(every=60, queue="reports")
def count_sales() -> dict[str, int]:
    """How many of each item were ordered so far."""
    return dict(Order.objects.order_by().values_list("item").annotate(Sum("quantity")))


def after_order(order: Order) -> None:
    """Put the jobs of an order when it is committed, where the site has a Redis.

    Their IDs are `invoice-` and `parcel-` with the number of the order; nothing is packed before the invoice is there.
    """
    if settings.JOBS:
        invoice = f"invoice-{order.number}"
        write_invoice.apply_async_on_commit((order.pk,), task_id=invoice, robust=True)
        pack.apply_async_on_commit((order.pk,), task_id=f"parcel-{order.number}", depends=[invoice], robust=True)


def order_links(job: Job) -> list[tuple[str, str]]:
    """What the admin shows with a job: its order."""
    kind, _, number = job.jid.partition("-")
    if kind not in ("invoice", "parcel"):
        return []
    return [(f"order {number}", f"{reverse('admin:shop_order_changelist')}?{urlencode({'q': number})}")]


def invoice_job(order: Order) -> Job | None:
    """The job that writes its invoice; None where it is gone, or nobody can be asked."""
    if not settings.JOBS:
        return None
    try:
        job = client.jobs.get(f"invoice-{order.number}")
    except (QlessError, StoreError) as error:
        log.warning("the job of the invoice of %s is unknown: %s", order.number, error)
        return None
    return job if isinstance(job, Job) else None
