"""The app `resty_qless`."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.utils.translation import gettext_lazy as _


class QlessConfig(AppConfig):
    name = "resty_django.qless"
    label = "resty_qless"
    verbose_name = _("Jobs")

    def ready(self) -> None:
        from resty_django.checks import check_core

        from . import checks, health, overview

        register(check_core, "resty_django")
        checks.connect()
        health.register()
        overview.register()
