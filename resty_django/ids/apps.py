"""The app `resty_ids`."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class IdsConfig(AppConfig):
    name = "resty_django.ids"
    label = "resty_ids"
    verbose_name = "ID service"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from resty_django.checks import check_core

        from . import health, overview, signals

        checks.register(check_core, "resty_django")
        signals.connect()
        health.register()
        overview.register()
