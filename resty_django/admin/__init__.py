"""The admin of what every site has: the shared dictionaries."""

from __future__ import annotations

from django.contrib import admin

from resty_django.models import SharedDictionary

from .dictionaries import SharedDictionaryAdmin

admin.site.register(SharedDictionary, SharedDictionaryAdmin)

__all__ = ["SharedDictionaryAdmin"]
