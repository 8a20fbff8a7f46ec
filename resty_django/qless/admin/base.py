"""What the pages of the job queue share: who may see them, doors to each other, a page while the store is down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ClassVar, Final, TypeVar

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from resty_django.admin.base import ShownAdmin
from resty_django.admin.shown import printable
from resty_django.redis import StoreError

from .. import history
from ..default import default_client
from ..errors import QlessError
from ..models import Named
from .shown import list_url
from .tables import Table

M = TypeVar("M", bound=Named)
TEMPLATES: Final = "admin/resty_qless"
DOORS: Final = (
    ("queue", _("Queues")),
    ("job", _("Jobs")),
    ("failuregroup", _("Failures")),
    ("worker", _("Workers")),
    ("tag", _("Tags")),
    ("recurringjob", _("Recurring")),
    ("option", _("Configuration")),
    ("about", _("About")),
)
EVERY: Final = 5
"""Seconds after which figures are fetched again, where that is wanted."""
VERBS: Final = ("retry_job", "cancel_job", "edit_job", "pause_queue", "configure_jobs")


class JobsAdmin(ShownAdmin[M]):
    """Pages about one kind of thing. Everybody with `resty_qless.view_job` sees them all."""

    refusals: ClassVar = (QlessError, StoreError)
    object_route = "<path:object_id>"
    live: ClassVar[bool] = True

    class Media:
        css: ClassVar = {"all": ["resty_qless/admin.css"]}

    # --- who may ----------------------------------------------------------------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("resty_qless.view_job")

    def look(self, request: HttpRequest) -> None:
        """Raises `PermissionDenied` for those who may not see the pages."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def allowed(self, request: HttpRequest) -> dict[str, bool]:
        """For templates: `may.cancel_job` and the other verbs."""
        return {verb: self.may(request, verb) for verb in VERBS}

    # --- pages ------------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        return self.model(key=object_id)

    def url_after(self, request: HttpRequest, obj: Any) -> str:
        gone = getattr(obj, "gone", False)
        return reverse(self.url_name("changelist")) if gone else reverse(self.url_name("change"), args=[quote(obj.pk)])

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("changelist", self.changelist_view, ""),
            *self.more_urls(),
            self.page_url("history", self.history_view),
            self.page_url("change", self.change_view),
        ]

    def more_urls(self) -> list[URLPattern]:
        """Those of the actions."""
        return []

    def page_url(self, name: str, view: Callable[..., Any], route: str | None = None) -> URLPattern:
        return super().page_url(name, self._answering(view), route)

    def _answering(self, view: Callable[..., Any]) -> Callable[..., Any]:
        """A page that says what is wrong, where the store is down or replies what cannot be read."""

        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            try:
                return view(request, *args, **kwargs)
            except (StoreError, QlessError, ImproperlyConfigured) as error:
                context = {"title": _("Jobs cannot be shown"), "error": printable(str(error), 1000), "live": False}
                return self.page(request, f"{TEMPLATES}/down.html", context, status=503)

        return guarded

    def page(self, request: HttpRequest, template: str, context: dict[str, Any], status: int = 200) -> Any:
        context = {
            "doors": [(list_url(model), label, model == self.opts.model_name) for model, label in DOORS],
            "jobs_url": list_url("job"),
            "live": self.live and request.method == "GET",
            "every": EVERY,
            "may": self.allowed(request),
            "media": forms.Media(
                css={"all": ["resty_django/admin.css", "resty_qless/admin.css"]},
            ),
            **context,
        }
        return super().page(request, template, context, status)

    def listed(self, request: HttpRequest, table: Table, **context: Any) -> HttpResponse:
        """The page of a list."""
        title = capfirst(self.opts.verbose_name_plural)
        return self.page(request, f"{TEMPLATES}/list.html", {"title": title, "table": table, **context})  # type: ignore[no-any-return]

    @staticmethod
    def like(request: HttpRequest, names: Iterable[str]) -> set[str]:
        """Those that contain what the address asks for by `name`, in letters of any case."""
        asked = request.GET.get("name", "").strip().casefold()
        return {name for name in names if asked in name.casefold()}

    def change(
        self,
        request: HttpRequest,
        object_id: str,
        *,
        permission: str,
        title: Any,
        button: Any,
        perform: Callable[[HttpRequest, Any, dict[str, Any]], Any],
        form: Callable[[Any, Any], forms.Form] = lambda data, obj: forms.Form(data),
        explain: Any = "",
        danger: bool = False,
    ) -> HttpResponse:
        """One action on its own page: see `act`. `perform` gives what is said, which is logged too, or that and what is
        logged; `explain`: a text, or a function of the object that gives more for the page."""

        def performed(request: HttpRequest, obj: Any, given: dict[str, Any]) -> str:
            told = perform(request, obj, given)
            said, logged = told if isinstance(told, tuple) else (told, told)
            self.note(request, str(logged), obj)
            return said  # type: ignore[no-any-return]

        return self.act(
            request,
            object_id,
            permission=permission,
            form=form,
            title=title,
            button=button,
            perform=performed,
            explain=lambda obj: {
                "danger": danger,
                "live": False,
                **(explain(obj) if callable(explain) else {"explain": explain}),
            },
            template=f"{TEMPLATES}/action.html",
        )

    @staticmethod
    def note(request: HttpRequest, text: str, *rows: Named) -> None:
        """Leave `text` in the history of each of `rows`."""
        history.note(request.user, rows, text)

    def say(self, request: HttpRequest, text: str, level: int = messages.SUCCESS) -> None:
        self.message_user(request, text, level)

    @staticmethod
    def client() -> Any:
        return default_client()


def named(object_id: str) -> str:
    """The token of an address."""
    return unquote(object_id)


__all__ = ["TEMPLATES", "JobsAdmin", "named"]
