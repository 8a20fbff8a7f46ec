"""Base class of the job queue's admin pages: permissions, navigation, and an error page while the store is down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, Final, TypedDict, TypeVar, Unpack

from django import forms
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from resty_django.admin.bulk import BulkAdmin
from resty_django.admin.charts import Chart
from resty_django.admin.operations import Operation
from resty_django.admin.tables import Table
from resty_django.conf import conf
from resty_django.redis.errors import StoreError
from resty_django.text import printable

from ..clients.default import default_client
from ..errors import QlessError
from ..models import Named, name_of, token
from ..search.query import FIELD_SUGGESTIONS
from .formatting import list_url

M = TypeVar("M", bound=Named)
TEMPLATES: Final = "admin/resty_qless"
NAV_ITEMS: Final[Sequence[tuple[str, Any]]] = (
    ("queue", _("Queues")),
    ("job", _("Jobs")),
    ("failuregroup", _("Failures")),
    ("jobgroup", _("Groups")),
    ("jobclass", _("Classes")),
    ("worker", _("Workers")),
    ("tag", _("Tags")),
    ("recurringjob", _("Recurring")),
    ("archivedjob", _("Archive")),
    ("option", _("Configuration")),
)
REFRESH_SECONDS: Final = 5
"""Seconds between two automatic updates of the figures, on pages that have them."""
PERMISSIONS: Final = (
    "retry_job",
    "cancel_job",
    "edit_job",
    "start_job",
    "pause_queue",
    "configure_jobs",
    "control_worker",
)


def nav_items() -> list[tuple[str, Any]]:
    """Return the models of the tabs and their labels; the archive only if the site has one."""
    return [item for item in NAV_ITEMS if item[0] != "archivedjob" or conf.qless.archive.enabled]


class PicksContext(TypedDict, total=False):
    """The context of `picks.html`: check boxes in a table, and operations on the selected rows."""

    bulk: str
    """The URL of bulk operations on the list."""
    picks_label: Any
    """The label of the operations."""
    operations: Sequence[Operation[Any]]
    select_all: int | bool | None
    """The number of rows if an operation may select all of the list."""


class ListContext(PicksContext, total=False):
    """The context of `list.html`, except its table. Links are pairs of URL and text."""

    title: Any
    object: Any
    on_object: bool
    filters: Mapping[str, str]
    """`q`: the text in the search field."""
    form: forms.Form
    """The filters; `filter_button`: the text of their button, `hidden_filters`: names and values of hidden fields."""
    filter_button: Any
    hidden_filters: Sequence[tuple[str, str]]
    search: Mapping[str, Any]
    """The search box: completions, examples and the error of its text."""
    tiles: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    shortcuts: Sequence[tuple[str, Any]]
    hints: Sequence[tuple[str, Any]]
    facts: Sequence[tuple[Any, Any]]
    extra_tables: Sequence[Table]
    periods: Sequence[tuple[str, Any, bool]]
    """Links to other periods of the charts: URL, text, and whether it is the current one."""
    charts: Sequence[Chart]
    actions: Sequence[tuple[str, Any, bool]]
    """URL and text of a link, and whether it is dangerous."""
    picks_url: str
    """The URL of operations on selected rows, if it is not `bulk`."""
    quick_operations: Sequence[tuple[str, str, bool]]
    """Name, text and danger of operations on all of the list."""


class JobsAdmin(BulkAdmin[M]):
    """Pages about one model of the job queue. Users with `resty_qless.view_job` can see all of them."""

    refusals: ClassVar = (QlessError, StoreError)
    object_route = "<path:object_id>"
    live: ClassVar[bool] = True
    client: ClassVar[Any] = staticmethod(default_client)
    """Returns the qless client of the settings."""

    class Media:
        css: ClassVar = {"all": ["resty_qless/admin.css"]}

    # --- permissions --------------------------------------------------------------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("resty_qless.view_job")

    def check_view_permission(self, request: HttpRequest) -> None:
        """Raise `PermissionDenied` if the user lacks `resty_qless.view_job`."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def permissions_of(self, request: HttpRequest) -> dict[str, bool]:
        """Return the user's permissions by codename, for templates: `may.cancel_job`."""
        return {codename: self.may(request, codename) for codename in PERMISSIONS}

    # --- pages --------------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> M | None:
        """Return a row for any key. Whether the object exists in Redis is checked when it is used."""
        return self.model(key=object_id)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show Django's history page for the name as the database stores it: PostgreSQL rejects NUL."""
        return super().history_view(request, quote(token(name_of(unquote(object_id)))), extra_context)

    def name_of(self, pk: str) -> str:
        return name_of(pk)

    def row(self, name: str, target: Any) -> Named:
        return self.model.from_name(name)

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("changelist", self.changelist_view, ""),
            *self.extra_urls(),
            self.page_url("history", self.history_view),
            self.page_url("change", self.change_view),
        ]

    def extra_urls(self) -> list[URLPattern]:
        """Return the URLs of operations; subclasses override this hook."""
        return []

    def page_url(self, name: str, view: Callable[..., Any], route: str | None = None) -> URLPattern:
        """Extend `PageAdmin.page_url` with an error page for failures of the store."""
        return super().page_url(name, self._with_error_page(view), route)

    def _with_error_page(self, view: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a view so that a store that is down or sends an unreadable reply leads to an error page (503)."""

        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            try:
                return view(request, *args, **kwargs)
            except (StoreError, QlessError, ImproperlyConfigured) as error:
                context = {"title": _("Jobs are not available"), "error": printable(str(error), 1000), "live": False}
                context["configured"] = not isinstance(error, ImproperlyConfigured)
                return self.page(request, f"{TEMPLATES}/down.html", context, status=503)

        return wrapper

    def page(self, request: HttpRequest, template: str, context: Mapping[str, Any], status: int = 200) -> HttpResponse:
        """Extend `PageAdmin.page` with the navigation, the search and the user's permissions."""
        tables = (context.get("table"), *context.get("extra_tables", ()))
        shared_context = {
            "exports": [table.export for table in tables if table and table.export],
            "nav_items": [(list_url(model), label, model == self.opts.model_name) for model, label in nav_items()],
            "jobs_url": list_url("job"),
            "frame": f"{TEMPLATES}/base.html",
            "search": {"suggestions": FIELD_SUGGESTIONS},
            "live": self.live and request.method == "GET",
            "every": REFRESH_SECONDS,
            "may": self.permissions_of(request),
            "media": forms.Media(
                css={
                    "all": [
                        "resty_django/theme.css",
                        "resty_django/admin.css",
                        "resty_django/chart.css",
                        "resty_qless/admin.css",
                    ]
                },
                js=["resty_django/chart.js"],
            ),
        }
        return super().page(request, template, {**shared_context, **context}, status)

    def list_page(self, request: HttpRequest, table: Table, **context: Unpack[ListContext]) -> HttpResponse:
        """Return the page of a list; its title is the model's name unless `context` has one."""
        default = {"title": capfirst(self.opts.verbose_name_plural), "table": table}
        order = [("o", request.GET["o"])] if request.GET.get("o") else []
        filters = [*context.pop("hidden_filters", ()), *order]
        return self.page(request, f"{TEMPLATES}/list.html", {**default, **context, "hidden_filters": filters})

    def picks_context(
        self, request: HttpRequest, total: int | None, operations: Sequence[Operation[Any]] = (), url: str = ""
    ) -> PicksContext:
        """Return the context of a list with check boxes, of this class or with the operations at `url`.

        `total`: the number of its rows, on all pages.
        """
        query = f"?{request.GET.urlencode()}" if request.GET else ""
        return {
            "bulk": url or reverse(self.url_name("bulk")) + query,
            "picks_label": _("Action for selected rows"),
            "operations": self.offered(request, operations),
            "select_all": total,
        }

    @staticmethod
    def filter_names(request: HttpRequest, names: Iterable[str]) -> list[str]:
        """Return the names that contain the URL parameter `name`, ignoring case."""
        search_text = request.GET.get("name", "").strip().casefold()
        return [name for name in names if search_text in name.casefold()]
