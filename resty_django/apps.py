"""The core app: the settings and the components that every site uses. It has no tables."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from resty_django import appconfig
from resty_django.appconfig import Part


class RestyDjangoConfig(appconfig.RestyAppConfig):
    name = "resty_django"
    label = "resty_django"
    verbose_name = _("Resty toolbox")
    system_checks = (
        "resty_django.checks.check_settings",
        "resty_django.checks.check_caches",
        "resty_django.checks.check_alerts",
    )
    probes = {name: f"resty_django.site_health.{name}" for name in ("settings", "databases", "caches")}
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
        self._register_timeline()
        from resty_django.events import autostart

        autostart.connect()

    def _register_timeline(self) -> None:
        from resty_django import timeline
        from resty_django.deferred import deferred
        from resty_django.timeline import autostart

        autostart.connect()
        view = "resty_django.view_timeline"
        for name, title, permission, order in (
            ("outages", _("Outages"), view, 1),
            ("deploys", _("Deploys"), view, 2),
            ("incidents", _("Alerts"), "resty_django.view_alert", 3),
            ("edits", _("Edits"), view, 4),
        ):
            ask = deferred(f"resty_django.timeline.core.{name}")
            timeline.register(
                timeline.Contributor(name, title, ask, (permission,), database=name == "edits", order=order)
            )
