"""Place an order and see its number, and ask for the stock: so often and no oftener."""

from __future__ import annotations

import logging

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from project.shop.forms import OrderForm
from project.shop.models import Order
from resty_django.ids import next_id
from resty_django.ids.errors import IdError
from resty_django.limits import limit_count, limit_req, policy
from resty_django.shdict import SharedDictError, shdicts
from resty_django.txid import current

SHOP = "shop"

log = logging.getLogger("project.shop")


def place(item: str, quantity: int) -> Order:
    """Store an order.

    The order number is taken before the transaction: gaps do not matter there. The invoice number is taken within
    it, so that an order which fails leaves no gap between the invoices. Raises `IdError` when a rule gives none.
    """
    number = next_id("order_id", app=SHOP)
    with transaction.atomic():
        invoice = next_id("invoice", app=SHOP)
        order = Order.objects.create(number=number, invoice=invoice, item=item, quantity=quantity, txid=current())
    log.info("order %s is placed", number)
    return order


def count_visit() -> int | None:
    """How often the front page was asked for, over all processes; None where the dictionary cannot be used."""
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
                return redirect("shop:order", number=order.number)
        else:
            status = 422
    context = {
        "form": form,
        "error": error,
        "orders": Order.objects.all()[:10],
        "visits": count_visit(),
        "pages": policy.named("order-pages"),
    }
    return render(request, "shop/home.html", context, status=status)


@require_GET
def order(request: HttpRequest, number: str) -> HttpResponse:
    return render(request, "shop/order.html", {"order": get_object_or_404(Order, number=number)})


@require_GET
@limit_req("50/s", burst=100, nodelay=True, name="stock")
def stock(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"in_stock": ["Tea", "Coffee"]})
