"""The order of this package's entries in the admin's list of apps."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest


def order_app_list(site: AdminSite) -> None:
    """Let the list of apps begin with the overview, and list this package's models in the order of their use.

    This is the order in which they are registered. Django sorts by name; other apps keep that order.
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
