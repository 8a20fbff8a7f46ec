"""Placeholder for admin classes that are imported with the first request. It shortens a start of 1.1 s by 0.3 s.

admin.site.register(Cache, DeferredAdmin, full_class="resty_django.cache.admin.caches.CacheAdmin", pages=(...))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, path
from django.utils.module_loading import import_string

from resty_django.database import outside_transactions

View = Callable[..., HttpResponseBase]

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Any]
else:
    _Base = object


class DeferredAdmin(_Base):
    """Provides the URLs of the class that `full_class` names, and imports it when anything else is needed.

    `pages`: the names of its pages, in URL order, with their routes if these are not `<path:object_id>/<name>/`;
    `lists`: the pages that are not about one object. `view_permission`: the permission to see them (None: Django's).
    `has_rows`: it has Django's pages, too, which its users may be permitted to use. `listed`: it is in the admin's list
    of models; otherwise other pages link to it.
    """

    full_class: ClassVar[str]
    pages: ClassVar[tuple[str | tuple[str, str], ...]] = ()
    lists: ClassVar[tuple[str, ...]] = ("changelist",)
    view_permission: ClassVar[str | None] = None
    has_rows: ClassVar[bool] = False
    listed: ClassVar[bool] = True

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        self.model, self.opts, self.admin_site = model, model._meta, admin_site

    def __getattr__(self, name: str) -> Any:
        if name == "full":  # its import has raised this kind of error
            raise AttributeError(f"{self.full_class} cannot be imported.")
        return getattr(self.full, name)

    @cached_property
    def full(self) -> admin.ModelAdmin[Any]:
        """Return the full admin class's instance, on the same site."""
        full_admin: admin.ModelAdmin[Any] = import_string(self.full_class)(self.model, self.admin_site)
        return full_admin

    @cached_property
    def views(self) -> dict[str, View]:
        """Return the full class's views by URL name."""
        return {pattern.name or "": pattern.callback for pattern in self.full.get_urls()}

    def check(self, **kwargs: Any) -> list[Any]:
        """Return no messages: the tests of this package check the full class."""
        return []

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_module_perms(self.opts.app_label)

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        """Return the permissions for the list of models; a model without rows has only the permission to view it."""
        if not self.listed:
            return {}
        if self.has_rows:
            return self.full.get_model_perms(request)
        may_view = self.has_view_permission(request)
        return {"add": False, "change": False, "delete": False, "view": may_view}

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        if self.view_permission is None:
            return admin.ModelAdmin.has_view_permission(self, request, obj)
        return request.user.has_perm(self.view_permission)

    has_view_or_change_permission = has_view_permission

    @property
    def urls(self) -> list[URLPattern]:
        return self.get_urls()

    def get_urls(self) -> list[URLPattern]:
        urls = []
        for page in self.pages:
            name, route = page if isinstance(page, tuple) else (page, self._route(page))
            urls.append(self._url(name, route, outside_transactions))
        if self.has_rows:
            row_pages = {
                "changelist": "",
                "add": "add/",
                "history": "<path:object_id>/history/",
                "delete": "<path:object_id>/delete/",
                "change": "<path:object_id>/change/",
                "": "<path:object_id>/",
            }
            urls += [self._url(name, route, lambda view: view) for name, route in row_pages.items()]
        return urls

    def _route(self, page: str) -> str:
        if page == "changelist":
            return ""
        route = f"{page.replace('_', '-')}/"
        return route if page in self.lists else f"<path:object_id>/{route}"

    def _url(self, page: str, route: str, decorate: Callable[[View], View]) -> URLPattern:
        name = f"{self.opts.app_label}_{self.opts.model_name}_{page}" if page else ""

        def view(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            return self.views[name](request, *args, **kwargs)

        vars(view)["model_admin"] = self
        return path(route, decorate(view), name=name or None)
