"""Admin pages of the core app: the overview and the shared dictionaries."""

from __future__ import annotations

from django.contrib import admin

from resty_django.models import Overview, SharedDictionary

from .app_list import order_app_list
from .deferred import DeferredAdmin

order_app_list(admin.site)
admin.site.register(
    Overview, DeferredAdmin, full_class="resty_django.admin.overview.OverviewAdmin", pages=("changelist",)
)
admin.site.register(
    SharedDictionary,
    DeferredAdmin,
    full_class="resty_django.admin.dictionaries.SharedDictionaryAdmin",
    pages=("changelist", "delete_key", "flush_expired", "flush_all", "history", "change"),
)
