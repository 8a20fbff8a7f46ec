"""The app `resty_cache`."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from resty_django import appconfig
from resty_django.appconfig import Part


class CacheConfig(appconfig.RestyAppConfig):
    name = "resty_django.cache"
    label = "resty_cache"
    verbose_name = _("Cache")
    system_checks = (
        "resty_django.checks.check_core",
        "resty_django.cache.checks.check_backends",
        "resty_django.cache.model_dependencies.checks.check_dependencies",
    )
    parts = (
        Part(
            name="cache",
            title=_("Caches"),
            permissions=("resty_cache.view_cache",),
            page="resty_cache_cache_changelist",
            order=30,
        ),
    )

    def ready(self) -> None:
        super().ready()
        from .model_dependencies.registry import listen_to_all

        listen_to_all()
