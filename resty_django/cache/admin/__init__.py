"""Admin of caches: hits by level, slowest callbacks, stored items, and their deletion."""

from __future__ import annotations

from django.contrib import admin

from resty_django.admin.deferred import DeferredAdmin

from ..models import Cache

admin.site.register(
    Cache,
    DeferredAdmin,
    full_class="resty_django.cache.admin.caches.CacheAdmin",
    pages=("changelist", "delete_key", "invalidate_tag", "purge", "history", "change"),
)
