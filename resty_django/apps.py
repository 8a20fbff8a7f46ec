"""The core app: the settings and the components that every site uses. It has no tables."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from resty_django import appconfig
from resty_django.appconfig import Part


class RestyDjangoConfig(appconfig.RestyAppConfig):
    name = "resty_django"
    label = "resty_django"
    verbose_name = _("System status")
    system_checks = (
        "resty_django.checks.check_settings",
        "resty_django.checks.check_caches",
        "resty_django.checks.check_databases",
    )
    deploy_checks = ("resty_django.checks.check_networks", "resty_django.shdict.checks.check_memory")
    probes = {name: f"resty_django.health.site.{name}" for name in ("settings", "databases", "caches")}
    parts = (
        Part(
            name="dictionaries",
            title=_("Shared dictionaries"),
            module="resty_django.shdict",
            permissions=("resty_django.view_shareddictionary",),
            page="resty_django_shareddictionary_changelist",
        ),
        Part(
            name="events",
            title=_("Events"),
            module="resty_django.events",
            permissions=("resty_django.view_overview",),
        ),
        Part(
            name="logs",
            title=_("Shipped logs"),
            module="resty_django.logs",
            permissions=("resty_django.view_overview",),
        ),
    )

    def ready(self) -> None:
        super().ready()
        from resty_django.events import autostart

        autostart.connect()
