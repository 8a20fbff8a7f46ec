"""Background tasks of the shop after an order is placed. Run by `manage.py runqless`."""

from __future__ import annotations

import logging
import time
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Sum
from django.urls import reverse

from project.shop.models import Order
from resty_django.qless import Job, QlessError, TaskContext, TaskOutcome, chain, client, task
from resty_django.redis import StoreError

log = logging.getLogger("project.shop")

SECONDS_A_PIECE = 0.2
PRACTICE_STEPS = 10
STOCK_OF_COCOA = 4


@task(retries=3, backoff=1, retry_on=OSError, timeout=30)
def write_invoice(order: int) -> str:
    """Write an order's invoice into the folder `invoices` and return the file. Idempotent."""
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
    """The ordered quantity is not in stock."""


@task(queue="packing")
def reorder(outcome: TaskOutcome, item: str) -> str:
    """Order more of an item whose parcel could not be packed."""
    log.info("%s is ordered from the supplier, because %s failed", item, outcome.jid)
    return f"{item} is ordered"


@task(bind=True, queue="packing", retries=1, backoff=5, tags=("parcel",))
def pack(self: TaskContext, order: int) -> str:
    """Pack an order piece by piece and return the parcel's content. Large orders of cocoa fail."""
    placed = Order.objects.get(pk=order)
    if placed.item == "Cocoa" and placed.quantity > STOCK_OF_COCOA:
        raise OutOfStock(f"{placed.quantity} x Cocoa were ordered, but only {STOCK_OF_COCOA} are in stock.")
    for piece in range(1, placed.quantity + 1):
        time.sleep(SECONDS_A_PIECE)
        self.update_progress(piece / placed.quantity, f"{piece} of {placed.quantity} pieces")
    return f"{placed.quantity} x {placed.item}"


class MailServerDown(Exception):
    """The simulated mail server does not respond."""


@task(bind=True, retries=2, backoff=2, tags=("practice",))
def practice(self: TaskContext) -> str:
    """Show the life of a job: the first run fails, the second one reports its progress and succeeds."""
    if self.attempt == 1:
        log.info("run 1: the mail server does not respond")
        raise MailServerDown("The mail server does not respond.")
    for step in range(1, PRACTICE_STEPS + 1):
        time.sleep(SECONDS_A_PIECE)
        self.update_progress(step / PRACTICE_STEPS, f"{step} of {PRACTICE_STEPS} steps")
    log.info("run %d: the mail is sent", self.attempt)
    return "The mail is sent."


@task(every=60, queue="reports")
def count_sales() -> dict[str, int]:
    """Count the ordered pieces of each item."""
    return dict(Order.objects.order_by().values_list("item").annotate(Sum("quantity")))


def after_order(order: Order) -> None:
    """Enqueue an order's jobs in its transaction, if the site has a Redis.

    The outbox stores them in the database, so an order has its jobs also if Redis is down at the moment.

    Their IDs are `invoice-` and `parcel-` with the number of the order; packing waits for the invoice. If it fails, a
    callback orders more.
    """
    if settings.JOBS:
        invoice = write_invoice.si(order.pk).set(task_id=f"invoice-{order.number}")
        parcel = pack.si(order.pk).set(task_id=f"parcel-{order.number}", on_failure=reorder.s(order.item))
        chain(invoice, parcel).delay()


def order_links(job: Job) -> list[tuple[str, str]]:
    """Return links for a job's page in the admin: its order."""
    kind, _, number = job.jid.partition("-")
    if kind not in ("invoice", "parcel"):
        return []
    return [(f"order {number}", f"{reverse('admin:shop_order_changelist')}?{urlencode({'q': number})}")]


def order_jobs(order: Order) -> dict[str, Job]:
    """Return the jobs that write the order's invoice and pack its parcel, as `invoice` and `parcel`.

    A job is missing if it is gone; both are if the server is unavailable.
    """
    if not settings.JOBS:
        return {}
    try:
        jobs = client.jobs.multiget(f"invoice-{order.number}", f"parcel-{order.number}")
    except (QlessError, StoreError) as error:
        log.warning("The jobs of the order %s are unavailable: %s", order.number, error)
        return {}
    return {job.jid.partition("-")[0]: job for job in jobs}
