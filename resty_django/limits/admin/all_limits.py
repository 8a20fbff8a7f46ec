"""All limits with their statistics: policies, decorators, throttles, functions, jobs, quotas and bans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import router
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from resty_django.admin.base import PageAdmin
from resty_django.admin.export import query_without
from resty_django.admin.statistics import why
from resty_django.admin.tables import Listing, listing
from resty_django.text import printable

from ..models import KeyBan, LimitPolicy, QuotaUsage
from ..policies import registry
from ..statistics import catalog
from ..statistics.reporter import OTHERS, stats
from . import columns
from .statistics import Figures, RefusedKey, figures, outages, refused_keys

TEMPLATES: Final = "admin/resty_limits/limitpolicy"
PER_PAGE: Final = 50
SHOWN_KEYS: Final = 3
"""The number of most refused keys in a row of the list."""
LABELS: Final = {
    catalog.POLICY: _("Policy"),
    catalog.DECORATOR: _("Decorator"),
    catalog.THROTTLE: _("Throttle"),
    catalog.FUNCTION: _("Function"),
    catalog.JOB: _("Jobs"),
    catalog.QUOTA: _("Quota"),
    catalog.BAN: _("Bans"),
    OTHERS: _("Several"),
}


@dataclass
class ListedLimit:
    """A limit in the list. `url`: its page of figures. `policy_url`: the page of a policy, the rows of a quota, or the
    bans of a limit; else "".
    """

    series: str
    rates: tuple[str, ...]
    locations: tuple[str, ...]
    url: str
    policy_url: str = ""

    @property
    def kind(self) -> str:
        return OTHERS if self.series == OTHERS else catalog.kind_and_name(self.series)[0]

    @property
    def kind_label(self) -> Any:
        return LABELS[self.kind]

    @property
    def name(self) -> str:
        """The name, with invisible characters escaped."""
        return printable(catalog.kind_and_name(self.series)[1], 200)

    @property
    def rate(self) -> str:
        return printable("; ".join(self.rates), 400)

    @property
    def places(self) -> list[str]:
        return [printable(location, 200) for location in self.locations]

    @cached_property
    def figures(self) -> Figures:
        """The decisions. Like `top`, read the store once, and raise its errors."""
        return Figures(self.series, stats.history(self.series))

    @cached_property
    def top(self) -> list[RefusedKey]:
        return [RefusedKey.of(entry) for entry in stats.top(self.series)[:SHOWN_KEYS]]

    def matches(self, text: str) -> bool:
        """Return whether the kind, the name or a location contains the text, in any case."""
        parts = (str(self.kind_label), self.name, *self.locations)
        return any(text.casefold() in part.casefold() for part in parts)


class AllLimitsAdmin(PageAdmin[LimitPolicy]):
    """Pages about all limits, for users who may view policies."""

    def all_limits_urls(self) -> list[URLPattern]:
        return [
            self.page_url("all_limits", self.all_limits_view, "limits/"),
            self.page_url("limit_figures", self.limit_figures_view, "limits/figures/"),
        ]

    @method_decorator(require_safe)
    def all_limits_view(self, request: HttpRequest) -> HttpResponse:
        """List all limits, those with the most refusals in the last hour first; `q` searches, `o` sorts."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        text = request.GET.get("q", "").strip()[:200]
        page: Page[ListedLimit] | None = None
        limits_listing: Listing[ListedLimit] = listing(request, columns.ALL_LIMITS, ())
        error = ""
        try:
            limits = [limit for limit in self.listed_limits() if limit.matches(text)]
            limits.sort(key=_most_refused)
            limits_listing = listing(request, columns.ALL_LIMITS, limits, find="")
            page = Paginator(limits_listing.rows, PER_PAGE).get_page(request.GET.get("page"))
            for limit in page:
                limit.figures, limit.top  # noqa: B018 (reads the store here, where errors are handled)
                limit.policy_url = limit.policy_url or self._rows_url(request, limit.series)
        except Exception as fault:  # settings without the dictionary, a store that is down, foreign data
            page, error = None, why(fault)
        context = {
            "title": _("All limits"),
            "page_of_limits": page,
            "error": error,
            "q": text,
            "heads": limits_listing.heads,
            "order": request.GET.get("o", ""),
            "query": query_without(request, "page").urlencode(),
            "outages": outages(),
            "exports": [] if page is None else [limits_listing.sheet("limits")],
        }
        return self.page(request, f"{TEMPLATES}/all_limits.html", context)

    @method_decorator(require_safe)
    def limit_figures_view(self, request: HttpRequest) -> HttpResponse:
        """Show the statistics of the limit in the query."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        series = request.GET.get("limit", "")
        try:
            stats.flush()
            limit = next((limit for limit in self.listed_limits() if limit.series == series), None)
            limit_figures = None
        except Exception as fault:
            limit = ListedLimit(series, (), (), "")
            limit_figures = Figures(series, error=why(fault))
        if limit is None:
            raise Http404(f"No limit is counted as {printable(series, 200)!r}.")
        if limit_figures is None:
            (limit_figures,) = figures([series], top=True)
        context = {
            "title": _("Figures"),
            "subtitle": limit.name,
            "limit": limit,
            "figures": limit_figures,
            "refused_keys": refused_keys(request, limit_figures),
            "outages": outages(),
        }
        return self.page(request, f"{TEMPLATES}/limit_figures.html", context)

    def listed_limits(self) -> list[ListedLimit]:
        """Return all limits: policies, limits of this process, and limits that other processes have counted.

        Raise `SharedDictError` if the store does not answer.
        """
        stats.flush()
        rows = dict(LimitPolicy.objects.using(router.db_for_write(LimitPolicy)).values_list("name", "pk"))
        policies = registry.all_policies()
        names = dict.fromkeys((*rows, *policies, *catalog.counted_limits(), *stats.names()))
        limits = []
        for series in names:
            url = f"{reverse(self.url_name('limit_figures'))}?{urlencode({'limit': series})}"
            if series in rows or series in policies:
                policy = policies.get(series)
                rates = (policy.describe(),) if policy is not None else ()
                policy_url = reverse(self.url_name("change"), args=[rows[series]]) if series in rows else ""
                if series in rows:
                    url = reverse(self.url_name("figures"), args=[rows[series]])
                limits.append(ListedLimit(series, rates, (), url, policy_url))
            else:
                limits.append(ListedLimit(series, *stats.description(series), url))
        return limits

    def _rows_url(self, request: HttpRequest, series: str) -> str:
        """Return the page with the rows of a quota, or the bans of a limit, if the user may view it; else ""."""
        kind, name = catalog.kind_and_name(series)
        model, parameter = {catalog.QUOTA: (QuotaUsage, "quota"), catalog.BAN: (KeyBan, "find")}.get(kind, (None, ""))
        if model is None or not self.admin_site.is_registered(model):
            return ""
        if not self.admin_site.get_model_admin(model).has_view_or_change_permission(request):
            return ""
        changelist = reverse(f"{self.admin_site.name}:{model._meta.app_label}_{model._meta.model_name}_changelist")
        return f"{changelist}?{urlencode({parameter: name})}"


def _most_refused(limit: ListedLimit) -> tuple[int, int, str]:
    hour = limit.figures.hour
    return -(hour.refused + hour.shadowed), -hour.all, limit.series
