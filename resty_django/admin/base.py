"""What the admin classes of all apps share: pages that do one thing under a permission, and figures as text."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import django
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseError
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

Model = TypeVar("Model", bound=models.Model)

if TYPE_CHECKING:

    class ModelAdmin(admin.ModelAdmin[Model]):
        pass
else:

    class ModelAdmin(admin.ModelAdmin):
        def __class_getitem__(cls, item: Any) -> type:
            return cls


Perform = Callable[[HttpRequest, Any, dict[str, Any]], str]
"""(request, object, cleaned data of the form) to the sentence that is shown. May raise one of the refusals."""


class PageAdmin(ModelAdmin[Model]):
    """Has pages beside Django's own: each does one thing to one object, under a permission of its own."""

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors whose text says why something is not done; it is shown as a message."""

    object_route: ClassVar[str] = "<int:object_id>"

    class Media:
        css: ClassVar = {"all": ["resty_django/admin.css"]}

    def url_name(self, name: str) -> str:
        """The name of one of this class's URLs, as `reverse` takes it."""
        opts = self.opts
        return f"{self.admin_site.name}:{opts.app_label}_{opts.model_name}_{name}"

    def page_url(self, name: str, view: Callable[..., Any], route: str | None = None) -> URLPattern:
        """A URL of this class: `<pk>/<name>/`, or `route`."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self.admin_site.admin_view(view)(*args, **kwargs)

        wrapper.model_admin = self  # type: ignore[attr-defined]
        opts = self.opts
        return path(
            f"{self.object_route}/{name.replace('_', '-')}/" if route is None else route,
            update_wrapper(wrapper, view),
            name=f"{opts.app_label}_{opts.model_name}_{name}",
        )

    def may(self, request: HttpRequest, codename: str, obj: Any = None) -> bool:
        """Whether the user may look at `obj` and holds the permission `codename` of this app."""
        return self.has_view_or_change_permission(request, obj) and request.user.has_perm(
            f"{self.opts.app_label}.{codename}"
        )

    def page(self, request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> TemplateResponse:
        """A page of the admin site, with what all of them need."""
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "listed_crumbs": django.VERSION >= (6, 1),
            **context,
        }
        return TemplateResponse(request, template, context, status=status)

    def url_after(self, request: HttpRequest, obj: Any) -> str:
        """Where to go when an action on `obj` is done: its page, or the list where it is gone."""
        if self.get_object(request, obj.pk) is None:
            return reverse(self.url_name("changelist"))
        return reverse(self.url_name("change"), args=[quote(obj.pk)])

    def act(
        self,
        request: HttpRequest,
        object_id: int | str,
        *,
        permission: str,
        form: Callable[[Any, Any], forms.Form],
        title: str,
        button: str,
        perform: Perform,
        explain: Callable[[Any], dict[str, Any]] = lambda obj: {},
        template: str,
    ) -> HttpResponse:
        """One action on its own page: GET shows `form(data, obj)`, a valid POST performs it, which logs it too.

        403 without `permission`. What is refused is shown as a message on the same page.
        """
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        pk = unquote(str(object_id))
        obj = self.get_object(request, pk)
        if not self.may(request, permission, obj):
            raise PermissionDenied
        if obj is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, pk)  # type: ignore[attr-defined, no-any-return]
        change_page = reverse(self.url_name("change"), args=[quote(obj.pk)])
        try:
            bound = form(request.POST if request.method == "POST" else None, obj)
        except self.refusals as error:
            self.message_user(request, format_html("Not possible: {}", str(error)), messages.ERROR)
            return HttpResponseRedirect(change_page)
        if request.method == "POST" and bound.is_valid():
            try:
                said = perform(request, obj, bound.cleaned_data)
            except self.refusals as error:
                self.message_user(request, format_html("Not done: {}", str(error)), messages.ERROR)
            except DatabaseError as error:
                self.message_user(request, format_html("The database did not answer: {}", str(error)), messages.ERROR)
            else:
                self.message_user(request, said, messages.SUCCESS)
                return HttpResponseRedirect(self.url_after(request, obj))
        context = {
            "title": title,
            "subtitle": str(obj),
            "button": button,
            "form": bound,
            "object": obj,
            "original": obj,
            "media": self.media + bound.media,
            "preserved_filters": self.get_preserved_filters(request),
            **explain(obj),
        }
        return self.page(request, template, context)


class ShownAdmin(PageAdmin[Model]):
    """Of things without rows: its own pages show and change them, those of Django add, edit and delete nothing."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
