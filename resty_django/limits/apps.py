"""The app `resty_limits`."""

from __future__ import annotations

from django.apps import AppConfig


class LimitsConfig(AppConfig):
    name = "resty_django.limits"
    label = "resty_limits"
    verbose_name = "Limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import changes, checks, health

        changes.connect()
        checks.connect()
        health.register()
