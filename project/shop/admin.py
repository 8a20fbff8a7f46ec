from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from project.shop.models import Order

if TYPE_CHECKING:
    _OrderAdmin = admin.ModelAdmin[Order]
else:
    _OrderAdmin = admin.ModelAdmin


@admin.register(Order)
class OrderAdmin(_OrderAdmin):
    list_display = ("number", "invoice", "item", "quantity", "placed_at")
    readonly_fields = ("number", "invoice", "placed_at")
    search_fields = ("number", "invoice")
