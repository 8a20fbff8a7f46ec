"""What both admin classes share: the database of the ID service, and pages that do one thing under a permission."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import django
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseError
from django.db import models, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from .. import service, store
from ..errors import IdError

Model = TypeVar("Model", bound=models.Model)

if TYPE_CHECKING:

    class ModelAdmin(admin.ModelAdmin[Model]):
        pass
else:

    class ModelAdmin(admin.ModelAdmin):
        def __class_getitem__(cls, item: Any) -> type:
            return cls


Perform = Callable[[HttpRequest, Any, dict[str, Any]], str]
"""(request, object, cleaned data of the form) to the sentence that is shown and logged. May raise IdError."""


class ServiceAdmin(ModelAdmin[Model]):
    """Reads and writes where the ID service keeps its rows (IDS["DATABASE"])."""

    class Media:
        css: ClassVar = {"all": ["resty_ids/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        return super().get_queryset(request).using(store.database())

    def url_name(self, name: str) -> str:
        """The name of one of this class's URLs, as `reverse` takes it."""
        opts = self.opts
        return f"{self.admin_site.name}:{opts.app_label}_{opts.model_name}_{name}"

    def page_url(self, name: str, view: Callable[..., Any], route: str = "") -> URLPattern:
        """A URL of this class: `<pk>/<name>/`, or `route`."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self.admin_site.admin_view(view)(*args, **kwargs)

        wrapper.model_admin = self  # type: ignore[attr-defined]
        opts = self.opts
        return path(
            route or f"<int:object_id>/{name.replace('_', '-')}/",
            update_wrapper(wrapper, view),
            name=f"{opts.app_label}_{opts.model_name}_{name}",
        )

    def may(self, request: HttpRequest, codename: str, obj: Any = None) -> bool:
        """Whether the user may look at `obj` and holds the permission `codename` of this app."""
        return self.has_view_or_change_permission(request, obj) and request.user.has_perm(
            f"{self.opts.app_label}.{codename}"
        )

    def act(
        self,
        request: HttpRequest,
        object_id: int,
        *,
        permission: str,
        form: Callable[[Any, Any], forms.Form],
        title: str,
        button: str,
        perform: Perform,
        explain: Callable[[Any], dict[str, Any]] = lambda obj: {},
        template: str,
    ) -> HttpResponse:
        """One action on its own page: GET shows `form(data, obj)`, a valid POST performs and logs it.

        403 without `permission`. What the service refuses is shown as a message on the same page.
        """
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        obj = self.get_object(request, str(object_id))
        if not self.may(request, permission, obj):
            raise PermissionDenied
        if obj is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, str(object_id))  # type: ignore[attr-defined, no-any-return]
        change_page = reverse(self.url_name("change"), args=[obj.pk])
        try:
            bound = form(request.POST if request.method == "POST" else None, obj)
        except IdError as error:
            self.message_user(request, format_html("Not possible: {}", str(error)), messages.ERROR)
            return HttpResponseRedirect(change_page)
        if request.method == "POST" and bound.is_valid():
            try:
                said = perform(request, obj, bound.cleaned_data)
            except IdError as error:
                self.message_user(request, format_html("Not done: {}", str(error)), messages.ERROR)
            except DatabaseError as error:
                self.message_user(request, format_html("The database did not answer: {}", str(error)), messages.ERROR)
            else:
                self.message_user(request, said, messages.SUCCESS)
                there = self.get_queryset(request).filter(pk=obj.pk).exists()
                return HttpResponseRedirect(change_page if there else reverse(self.url_name("changelist")))
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": str(obj),
            "button": button,
            "form": bound,
            "object": obj,
            "original": obj,
            "opts": self.opts,
            "media": self.media + bound.media,
            "preserved_filters": self.get_preserved_filters(request),
            "listed_crumbs": django.VERSION >= (6, 1),
            **explain(obj),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/resty_ids/{template}", context)

    def issue_one(self, request: HttpRequest, obj: Any, rule: Any, app: str, salt: str) -> str:
        """Issue an ID and log it at `obj`. The number of a gapless rule is taken back when the log fails."""

        def issue() -> str:
            made = str(service.next_id(rule.name, app=app, salt=salt))
            self.log_change(request, obj, f"Issued {made} for the application name “{app}”.")
            return made

        if rule.gapless:
            with transaction.atomic(using=store.database()):
                made = issue()
        else:
            made = issue()
        return format_html('Issued <code class="resty-id">{}</code>', made)
