"""The admin of limits: policies, overrides and bans, their statistics, and actions."""

from __future__ import annotations

from django.contrib import admin

from ..models import KeyBan, LimitOverride, LimitPolicy
from .bans import BanAdmin
from .overrides import LimitOverrideAdmin
from .policies import LimitPolicyAdmin

admin.site.register(LimitPolicy, LimitPolicyAdmin)
admin.site.register(LimitOverride, LimitOverrideAdmin)
admin.site.register(KeyBan, BanAdmin)

__all__ = ["BanAdmin", "LimitOverrideAdmin", "LimitPolicyAdmin"]
