"""The app `resty_ids`."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from resty_django import appconfig
from resty_django.appconfig import Part


class IdsConfig(appconfig.RestyAppConfig):
    name = "resty_django.ids"
    label = "resty_ids"
    verbose_name = _("ID service")
    default_auto_field = "django.db.models.BigAutoField"
    system_checks = ("resty_django.checks.check_core", "resty_django.ids.declared.check_rules")
    parts = (
        Part(
            name="ids",
            title=_("IDs"),
            permissions=("resty_ids.view_idcounter", "resty_ids.change_idcounter"),
            page="resty_ids_idcounter_changelist",
            order=10,
            database=True,
        ),
    )

    def ready(self) -> None:
        super().ready()
        from . import declared, signals

        signals.connect()
        declared.connect(self)
