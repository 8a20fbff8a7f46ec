"""The admin of what every site has: the overview and the shared dictionaries."""

from __future__ import annotations

from django.contrib import admin

from resty_django.models import Overview, SharedDictionary

from .dictionaries import SharedDictionaryAdmin
from .overview import OverviewAdmin

admin.site.register(SharedDictionary, SharedDictionaryAdmin)
admin.site.register(Overview, OverviewAdmin)

__all__ = ["OverviewAdmin", "SharedDictionaryAdmin"]
