"""Base class of the job queue's admin pages: permissions, navigation, and an error page while the store is down.

    class TagAdmin(JobsAdmin[Tag]):
        @viewer_page
        def changelist_view(self, request: HttpRequest) -> HttpResponse:
            rows = [Row({"name": tag}) for tag in self.client().tags()]
            return self.list_page(request, table(request, COLUMNS, rows, caption="Tags", empty="No tags."))

The models have no rows in the database (`models.Named`): an object of the list is a name in Redis, and its primary key
in URLs is `token(name)`. `PageAdmin` in `resty_django/admin/base.py` renders the pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import wraps
from typing import ClassVar, Final, TypeVar

from django import forms
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from resty_django.admin.base import PageAdmin, View
from resty_django.admin.bulk import BulkAdmin
from resty_django.admin.lists import Tab
from resty_django.conf import conf
from resty_django.redis.errors import StoreError
from resty_django.text import printable

from ..clients.client import Client
from ..clients.default import default_client
from ..errors import QlessError
from ..models import Named, name_of, token
from ..search.query import FIELD_SUGGESTIONS
from .formatting import list_url

M = TypeVar("M", bound=Named)
TEMPLATES: Final = "admin/resty_qless"


def nav_items() -> dict[str, Promise]:
    """Return the labels of the tabs on all pages by the name of their model. Archive and outbox are optional."""
    items: dict[str, Promise] = {
        "queue": _("Queues"),
        "job": _("Jobs"),
        "failuregroup": _("Failures"),
        "worker": _("Workers"),
        "recurringjob": _("Recurring"),
        "jobgroup": _("Groups"),
        "jobclass": _("Classes"),
        "tag": _("Tags"),
        "archivedjob": _("Archive"),
        "outboxentry": _("Outbox"),
        "option": _("Configuration"),
    }
    if not conf.qless.archive.enabled:
        del items["archivedjob"]
    if not conf.qless.outbox.is_used:
        del items["outboxentry"]
    return items


class JobsAdmin(BulkAdmin[M]):
    """Pages about one model of the job queue. Users with `resty_qless.view_job` can see all of them."""

    refusals: ClassVar[tuple[type[Exception], ...]] = (QlessError, StoreError)
    object_route = "<path:object_id>"
    live: ClassVar[bool] = True

    class Media:
        css: ClassVar = {"all": ["resty_django/admin.css", "resty_django/chart.css", "resty_qless/admin.css"]}

    def client(self) -> Client:
        """Return the client of the settings."""
        return default_client()

    # --- permissions --------------------------------------------------------------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("resty_qless.view_job")

    def permissions_of(self, request: HttpRequest) -> dict[str, bool]:
        """Return the user's permissions by codename, for templates: `may.cancel_job`."""
        actions = ("retry_job", "cancel_job", "edit_job", "start_job")
        codenames = (*actions, "pause_queue", "configure_jobs", "control_worker")
        return {codename: self.may(request, codename) for codename in codenames}

    # --- pages --------------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        """Return a row for any key. Pages and operations check whether the object exists in Redis."""
        return self.model(key=object_id)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, object] | None = None
    ) -> HttpResponse:
        """Show Django's history page for the token of the name, since PostgreSQL rejects NUL."""
        return super().history_view(request, quote(token(name_of(unquote(object_id)))), extra_context)

    def name_of(self, pk: str) -> str:
        return name_of(pk)

    def row(self, name: str, target: object) -> M:
        return self.model.from_name(name)

    def url_after(self, request: HttpRequest, obj: M, gone: bool = False) -> str:
        """Return to the list if the operation came from there: see `formatting.url_from_list`."""
        return super().url_after(request, obj, gone or "list" in request.GET)

    def extra_urls(self) -> list[URLPattern]:
        bulk = self.page_url("bulk", self.bulk_view, "bulk/")
        return [*([bulk] if any(operation.done for operation in self.operations) else []), *super().extra_urls()]

    def page_url(self, name: str, view: View, route: str | None = None) -> URLPattern:
        """Extend `PageAdmin.page_url` with an error page for failures of the store."""
        return super().page_url(name, self._with_error_page(view), route)

    def _with_error_page(self, view: View) -> View:
        """Wrap a view: if the store is down or sends an unreadable reply, show an error page with status 503."""

        @wraps(view)
        def wrapper(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            try:
                return view(request, *args, **kwargs)
            except (StoreError, QlessError, ImproperlyConfigured) as error:
                context = {"title": _("Jobs are not available"), "error": printable(str(error), 1000), "live": False}
                context["configured"] = not isinstance(error, ImproperlyConfigured)
                return self.page(request, f"{TEMPLATES}/down.html", context, status=503)

        return wrapper

    def page(
        self, request: HttpRequest, template: str, context: Mapping[str, object], status: int = 200
    ) -> HttpResponse:
        """Extend `PageAdmin.page` with the navigation, the search and the user's permissions."""
        shared_context = {
            "nav_items": [
                Tab(list_url(model), label, model == self.opts.model_name) for model, label in nav_items().items()
            ],
            "jobs_url": list_url("job"),
            "frame": f"{TEMPLATES}/base.html",
            "search": {"suggestions": FIELD_SUGGESTIONS},
            "live": self.live and request.method == "GET",
            "every": 5,  # seconds between two updates of the figures
            "may": self.permissions_of(request),
            "media": forms.Media(PageAdmin.Media) + forms.Media(JobsAdmin.Media),
        }
        return super().page(request, template, {**shared_context, **context}, status)

    @staticmethod
    def filter_names(request: HttpRequest, names: Iterable[str]) -> list[str]:
        """Return the names that contain the URL parameter `name`, ignoring case."""
        search_text = request.GET.get("name", "").strip().casefold()
        return [name for name in names if search_text in name.casefold()]
