"""The admin of limits: policies, overrides, quotas and bans, their statistics, and actions."""

from __future__ import annotations

from django.contrib import admin

from ..models import KeyBan, LimitOverride, LimitPolicy, QuotaUsage
from .bans import BanAdmin
from .overrides import LimitOverrideAdmin
from .policies import LimitPolicyAdmin
from .quotas import QuotaUsageAdmin

admin.site.register(LimitPolicy, LimitPolicyAdmin)
admin.site.register(LimitOverride, LimitOverrideAdmin)
admin.site.register(KeyBan, BanAdmin)
admin.site.register(QuotaUsage, QuotaUsageAdmin)

__all__ = ["BanAdmin", "LimitOverrideAdmin", "LimitPolicyAdmin", "QuotaUsageAdmin"]
