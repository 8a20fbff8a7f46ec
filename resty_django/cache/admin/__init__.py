"""The admin of caches: how often each level answers, the slowest callbacks, what is kept, and deleting it."""

from __future__ import annotations

from django.contrib import admin

from ..models import Cache
from .caches import CacheAdmin

admin.site.register(Cache, CacheAdmin)

__all__ = ["CacheAdmin"]
