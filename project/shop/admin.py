from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from project.shop.models import Order
from resty_django.qless.admin.links import show_jobs
from resty_django.txid.admin import show_txid

if TYPE_CHECKING:
    _OrderAdmin = admin.ModelAdmin[Order]
else:
    _OrderAdmin = admin.ModelAdmin


request = show_txid("txid", "Request")
jobs = show_jobs("txid")


@admin.register(Order)
class OrderAdmin(_OrderAdmin):
    list_display = ("number", "invoice", "item", "quantity", "placed_at", request, jobs)
    readonly_fields = ("number", "invoice", "placed_at", request, jobs)
    search_fields = ("number", "invoice", "txid")
