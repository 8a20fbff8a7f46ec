"""The admin of the ID service: rules with a live preview, counters with forecasts, and actions for both."""

from __future__ import annotations

from django.contrib import admin

from resty_django.admin.deferred import DeferredAdmin

from ..models import IdCounter, IdRule

admin.site.register(
    IdRule,
    DeferredAdmin,
    full_class=f"{__name__}.rules.IdRuleAdmin",
    pages=(("preview", "preview/"), ("issue", "<int:object_id>/issue/")),
    has_rows=True,
)
admin.site.register(
    IdCounter,
    DeferredAdmin,
    full_class=f"{__name__}.counters.IdCounterAdmin",
    pages=tuple(
        (name, f"<int:object_id>/{name.replace('_', '-')}/") for name in ("issue", "raise", "lower", "confirm_step")
    ),
    has_rows=True,
)
