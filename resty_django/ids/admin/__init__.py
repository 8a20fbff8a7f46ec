"""The admin of the ID service: rules with a live preview, counters with forecasts, and actions for both."""

from __future__ import annotations

from django.contrib import admin

from ..models import IdCounter, IdRule
from .counters import IdCounterAdmin
from .rules import IdRuleAdmin

admin.site.register(IdRule, IdRuleAdmin)
admin.site.register(IdCounter, IdCounterAdmin)

__all__ = ["IdCounterAdmin", "IdRuleAdmin"]
