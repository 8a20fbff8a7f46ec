"""The admin of caches: how often each level answers, the slowest callbacks, what is kept, and deleting it."""

from __future__ import annotations

from django.contrib import admin

from resty_django.admin.deferred import DeferredAdmin

from ..models import Cache

admin.site.register(
    Cache,
    DeferredAdmin,
    full_class="resty_django.cache.admin.caches.CacheAdmin",
    pages=("changelist", "delete_key", "purge", "history", "change"),
)
