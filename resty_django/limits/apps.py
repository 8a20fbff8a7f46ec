"""The app `resty_limits`."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from resty_django import appconfig
from resty_django.appconfig import Part


class LimitsConfig(appconfig.RestyAppConfig):
    name = "resty_django.limits"
    label = "resty_limits"
    verbose_name = _("Limits")
    default_auto_field = "django.db.models.BigAutoField"
    system_checks = (
        "resty_django.checks.check_core",
        "resty_django.limits.checks.check_rules",
        "resty_django.limits.checks.check_login_guard",
        "resty_django.limits.checks.check_users",
    )
    deploy_checks = ("resty_django.limits.checks.check_proxies",)
    parts = (
        Part(
            name="limits",
            title=_("Limits"),
            permissions=("resty_limits.view_limitpolicy", "resty_limits.change_limitpolicy"),
            page="resty_limits_limitpolicy_changelist",
            order=20,
        ),
    )

    def ready(self) -> None:
        super().ready()
        from .callers.names import LOGIN_GUARD
        from .policies import invalidation

        invalidation.connect()
        if LOGIN_GUARD in settings.AUTHENTICATION_BACKENDS:
            import_module("resty_django.limits.login.backend")  # connects its receivers in every process
