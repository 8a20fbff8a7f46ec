"""Views to place and show orders, with limits and caching."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from project import traffic
from project.shop.figures import figures
from project.shop.forms import ITEMS, OrderForm
from project.shop.models import Order
from project.shop.tasks import after_order, order_jobs
from resty_django.cache import cache_view, cached
from resty_django.ids import next_id
from resty_django.ids.errors import IdError
from resty_django.limits import Quota, get_policy, limit_count, limit_req, quota, usage
from resty_django.shdict import SharedDictError, shdicts
from resty_django.txid import current

SHOP = "shop"

log = logging.getLogger("project.shop")

price_lists = Quota("price-lists", 5, per="hour", key="ip")
"""The downloads of each address, because the shop's visitors have no accounts."""


def place(item: str, quantity: int) -> Order:
    """Store an order.

    The model fills in the order number; gaps do not matter there. The invoice number is taken within the transaction,
    so that a failed order leaves no gap between invoices. Raise `IdError` if no ID is available.
    """
    with transaction.atomic():
        invoice = next_id("invoice", app=SHOP)
        order = Order.objects.create(invoice=invoice, item=item, quantity=quantity, txid=current())
        after_order(order)
    return order


@cached(ttl=300, depends_on=[Order])
def units_sold(item: str) -> int:
    """Return the number of ordered pieces of an item, cached for all processes until the next order is committed."""
    return Order.objects.filter(item=item).aggregate(Sum("quantity"))["quantity__sum"] or 0


def count_visit() -> int | None:
    """Count a visit and return the total over all processes; None if the dictionary cannot be used."""
    try:
        count: int = shdicts["default"].incr("shop:visits", 1, init=0)
    except SharedDictError:
        return None
    return count


@require_http_methods(["GET", "HEAD", "POST"])
@limit_count(30, per="1min", methods=["POST"], name="orders")
def home(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST if request.method == "POST" else None)
    status, error = 200, ""
    if request.method == "POST":
        if form.is_valid():
            try:
                order = place(form.cleaned_data["item"], form.cleaned_data["quantity"])
            except IdError as problem:
                status, error = problem.http_status, str(problem)
            else:
                log.info("order %s is placed", order.number, extra={"request": request})
                return redirect("shop:order", number=order.number)
        else:
            status = 422
    context = {
        "form": form,
        "error": error,
        "figures": figures(),
        "orders": Order.objects.all()[:10],
        "visits": count_visit(),
        "redis_url": settings.REDIS_URL,
        "pages": get_policy("order-pages"),
        "traffic": traffic.is_on() if settings.DEMO_TRAFFIC else None,
    }
    return render(request, "shop/home.html", context, status=status)


@require_GET
def order(request: HttpRequest, number: str) -> HttpResponse:
    order_row = get_object_or_404(Order, number=number)
    return render(request, "shop/order.html", {"order": order_row, "jobs": order_jobs(order_row)})


@require_GET
@limit_req("50/s", burst=100, nodelay=True, name="stock")
def stock(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"in_stock": ["Tea", "Coffee"]})


@cache_view(300, query=(), max_age=0, stale_while_revalidate=60, depends_on=[Order])
@require_http_methods(["GET", "HEAD"])
def items(request: HttpRequest) -> HttpResponse:
    """List the items. The page is rendered again after an order, and browsers revalidate it."""
    return render(request, "shop/items.html", {"items": [(item, units_sold(item)) for item in ITEMS]})


@require_GET
@quota(price_lists)
def price_list(request: HttpRequest) -> HttpResponse:
    """Download the items and their prices."""
    lines = ["item,price", *(f"{item},{len(item)}.00" for item in ITEMS)]
    return HttpResponse("\n".join(lines) + "\n", content_type="text/csv")


@require_GET
@never_cache
def quotas(request: HttpRequest) -> HttpResponse:
    """Show what the visitor has used of each quota."""
    return render(request, "shop/quotas.html", {"usages": usage(request)})


@require_POST
def visitors(request: HttpRequest) -> HttpResponse:
    """Turn the simulated visitors on or off."""
    traffic.switch(request.POST.get("on") == "1")
    return redirect("shop:home")
