"""The core app: no tables; registers the checks of the settings and the health probes of what every site has."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.utils.translation import gettext_lazy as _


class RestyDjangoConfig(AppConfig):
    name = "resty_django"
    label = "resty_django"
    verbose_name = _("Resty toolbox")

    def ready(self) -> None:
        from resty_django import health, panels, probes
        from resty_django.checks import check_settings
        from resty_django.events import autostart
        from resty_django.events import health as events_health
        from resty_django.logs import health as logs_health

        checks.register(check_settings, "resty_django")
        health.register("settings", probes.settings)
        health.register("databases", probes.databases)
        health.register("caches", probes.caches)
        health.register("dictionaries", probes.dictionaries)
        events_health.register()
        logs_health.register()
        panels.register()
        autostart.connect()
