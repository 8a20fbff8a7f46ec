"""The app `resty_cache`."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class CacheConfig(AppConfig):
    name = "resty_django.cache"
    label = "resty_cache"
    verbose_name = "Cache"

    def ready(self) -> None:
        from resty_django.checks import check_core

        from . import health, overview
        from .checks import check_backends

        checks.register(check_core, "resty_django")
        checks.register(check_backends, "resty_django")
        health.register()
        overview.register()
