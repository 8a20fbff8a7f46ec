"""The app `resty_limits`."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register


class LimitsConfig(AppConfig):
    name = "resty_django.limits"
    label = "resty_limits"
    verbose_name = "Limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from resty_django.checks import check_core

        from . import changes, checks, health, overview

        register(check_core, "resty_django")
        changes.connect()
        checks.connect()
        health.register()
        overview.register()
