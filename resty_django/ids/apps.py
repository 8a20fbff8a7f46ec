"""The app `resty_ids`."""

from __future__ import annotations

from django.apps import AppConfig


class IdsConfig(AppConfig):
    name = "resty_django.ids"
    label = "resty_ids"
    verbose_name = "ID service"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import health, signals

        signals.connect()
        health.register()
