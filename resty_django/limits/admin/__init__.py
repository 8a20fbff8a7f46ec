"""The admin of limits: policies and bans, their statistics, and actions."""

from __future__ import annotations

from django.contrib import admin

from ..models import KeyBan, LimitPolicy
from .bans import BanAdmin
from .policies import LimitPolicyAdmin

admin.site.register(LimitPolicy, LimitPolicyAdmin)
admin.site.register(KeyBan, BanAdmin)

__all__ = ["BanAdmin", "LimitPolicyAdmin"]
