"""The orders of the demo shop."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """One order. `number` comes from the rule `order_id`, `invoice` from the gapless rule `invoice`."""

    number = models.CharField(max_length=32, unique=True)
    invoice = models.CharField(max_length=32, unique=True)
    item = models.CharField(max_length=80)
    quantity = models.PositiveSmallIntegerField(default=1)
    placed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.number
