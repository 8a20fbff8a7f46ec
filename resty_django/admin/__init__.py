"""Admin pages of the core app: the overview, the alerts, the timeline and the shared dictionaries."""

from __future__ import annotations

from django.contrib import admin

from resty_django.models import Alert, Overview, SharedDictionary, Timeline

from .deferred import DeferredAdmin

admin.site.register(
    SharedDictionary,
    DeferredAdmin,
    full_class="resty_django.admin.dictionaries.SharedDictionaryAdmin",
    pages=("changelist", "delete_key", "flush_expired", "flush_all", "history", "change"),
)
admin.site.register(
    Overview, DeferredAdmin, full_class="resty_django.admin.overview.OverviewAdmin", pages=("changelist",)
)
admin.site.register(Alert, DeferredAdmin, full_class="resty_django.admin.alerts.AlertAdmin", pages=("changelist",))
admin.site.register(
    Timeline, DeferredAdmin, full_class="resty_django.admin.timeline.TimelineAdmin", pages=("changelist",)
)
