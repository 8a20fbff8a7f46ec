"""The admin of limits: policies, overrides, quotas and bans, their statistics, and actions."""

from __future__ import annotations

from django.contrib import admin

from resty_django.admin.deferred import DeferredAdmin

from ..models import KeyBan, LimitOverride, LimitPolicy, QuotaUsage

admin.site.register(
    LimitPolicy,
    DeferredAdmin,
    full_class=f"{__name__}.policies.LimitPolicyAdmin",
    pages=(
        ("limit_figures", "limits/figures/"),
        ("key", "limits/key/"),
        ("reset_limit", "limits/key/reset/"),
        ("figures", "<int:object_id>/figures/"),
        ("try", "<int:object_id>/try/"),
        ("reset_key", "<int:object_id>/reset-key/"),
    ),
    has_rows=True,
)
admin.site.register(LimitOverride, DeferredAdmin, full_class=f"{__name__}.overrides.LimitOverrideAdmin", has_rows=True)
admin.site.register(
    KeyBan,
    DeferredAdmin,
    full_class=f"{__name__}.bans.BanAdmin",
    pages=("changelist", ("lift_selected", "lift/"), "lift", "history", "change"),
)
admin.site.register(
    QuotaUsage,
    DeferredAdmin,
    full_class=f"{__name__}.quotas.QuotaUsageAdmin",
    pages=("changelist", ("grant_key", "grant/"), "grant", "reset", "history", "change"),
)
