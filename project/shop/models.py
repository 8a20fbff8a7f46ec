"""Models of the demo shop."""

from __future__ import annotations

from django.db import models

from resty_django.ids.fields import IdField
from resty_django.txid.fields import TxidField


class Order(models.Model):
    """An order.

    `number` is filled by the rule `order_id` at the first save; `invoice` comes from the gapless rule `invoice`, `txid`
    from the request that placed it.
    """

    number = IdField(rule="order_id", app="shop", max_length=32)
    invoice = models.CharField(max_length=32, unique=True)
    item = models.CharField(max_length=80)
    quantity = models.PositiveSmallIntegerField(default=1)
    txid = TxidField(null=True, editable=False, db_index=True)
    placed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.number
