"""Placeholder for admin classes that are imported with the first request, to keep startup fast.

admin.site.register(Cache, DeferredAdmin, full_class="resty_django.cache.admin.caches.CacheAdmin", pages=(...))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.module_loading import import_string

from resty_django.database import outside_transactions

from .base import ReadOnlyAdmin


class DeferredAdmin(ReadOnlyAdmin[models.Model]):
    """Provides the URLs and permissions of the class that `full_class` names, and imports it for the first request.

    `pages`: the names of its pages, in URL order; `lists`: the pages that are not about one object. The other
    pages are at `<path:object_id>/<name>/`. `view_permission`: the permission to see them (None: Django's).
    """

    full_class: ClassVar[str]
    pages: ClassVar[tuple[str, ...]]
    lists: ClassVar[tuple[str, ...]] = ("changelist",)
    view_permission: ClassVar[str | None] = None

    @cached_property
    def full(self) -> admin.ModelAdmin[Any]:
        """Return the full admin class's instance, on the same site."""
        full_admin: admin.ModelAdmin[Any] = import_string(self.full_class)(self.model, self.admin_site)
        return full_admin

    @cached_property
    def views(self) -> dict[str, Callable[..., Any]]:
        """Return the full class's views by URL name."""
        return {str(pattern.name): pattern.callback for pattern in self.full.get_urls()}

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if self.view_permission is None:
            return super().has_view_permission(request, obj)
        return request.user.has_perm(self.view_permission)

    def get_urls(self) -> list[URLPattern]:
        return [self._url(page) for page in self.pages]

    def _url(self, page: str) -> URLPattern:
        name = f"{self.opts.app_label}_{self.opts.model_name}_{page}"
        route = f"{page.replace('_', '-')}/"
        if page == "changelist":
            route = ""
        elif page not in self.lists:
            route = f"<path:object_id>/{route}"

        def view(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return self.views[name](request, *args, **kwargs)

        view.model_admin = self  # type: ignore[attr-defined]
        return path(route, outside_transactions(view), name=name)
