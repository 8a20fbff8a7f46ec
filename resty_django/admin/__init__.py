"""Admin pages of the core app: the overview and the shared dictionaries."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from resty_django.models import Overview, SharedDictionary

from .deferred import DeferredAdmin


def order_app_list(site: admin.AdminSite) -> None:
    """Put the overview first in the list of apps, and sort this package's models by the order of their registration.

    Other apps keep Django's order, which is by name.
    """
    sorted_by_name = site.get_app_list

    def get_app_list(request: HttpRequest, app_label: str | None = None) -> list[Any]:
        listed: list[Any] = sorted_by_name(request, app_label)
        registered = list(site._registry)
        for app in listed:
            if app["app_label"].startswith("resty_"):
                app["models"].sort(key=lambda model: registered.index(model["model"]))
        return sorted(listed, key=lambda app: app["app_label"] != "resty_django")

    site.get_app_list = get_app_list  # type: ignore[method-assign]


order_app_list(admin.site)
admin.site.register(
    Overview, DeferredAdmin, full_class="resty_django.admin.overview.OverviewAdmin", pages=("changelist",)
)
admin.site.register(
    SharedDictionary,
    DeferredAdmin,
    full_class="resty_django.admin.dictionaries.SharedDictionaryAdmin",
    pages=("changelist", "delete_key", "flush_expired", "flush_all", "history", "change"),
)
