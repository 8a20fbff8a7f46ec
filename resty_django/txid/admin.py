"""Txids in the admin, with the time they contain.

class OrderAdmin(admin.ModelAdmin):
    list_display = ["number", show_txid("txid")]
    readonly_fields = [show_txid("txid")]
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.text import capfirst

from .codec import InvalidTxid, parse


def show_txid(field: str, description: str = "") -> Any:
    """Return a list column or read-only field with the txid in `field` and its time in the current time zone.

    The column sorts by the field. `description` is its heading; default: the name of the field.
    """

    @admin.display(description=description or capfirst(field.replace("_", " ")), ordering=field)
    def column(obj: Model) -> str:
        value = getattr(obj, field)
        return with_time(value) if value else ""

    column.__name__ = f"{field}_shown"
    return column


def with_time(txid: str) -> str:
    """Return the txid and its time to the millisecond, as HTML."""
    try:
        time = parse(txid).time
    except InvalidTxid:
        return format_html("<code>{}</code>", txid)
    local = timezone.localtime(time)
    text = f"{formats.date_format(local, 'DATE_FORMAT')}, {local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return format_html('<code>{}</code> <time datetime="{}">{}</time>', txid, time.isoformat(), text)
