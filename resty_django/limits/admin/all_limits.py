"""All limits with their statistics: policies, decorators, throttles, functions, jobs, quotas and bans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.export import query_without
from resty_django.admin.formatting import number
from resty_django.admin.statistics import why
from resty_django.admin.tables import listing
from resty_django.text import printable

from ..models import KeyBan, LimitPolicy, QuotaUsage
from ..policies import registry
from ..specs.lines import EXEMPTION_FIELDS, lines_of
from ..specs.policy import PolicySpec, describe, describe_bans, describe_rates, describe_tiers, is_set
from ..specs.policy_validation import BadPolicy, find_problems
from ..statistics import catalog
from ..statistics.reporter import OTHER_LIMITS, stats
from . import columns
from .modes import ModesAdmin
from .statistics import LimitFigures, figures, outages, refused_keys

TEMPLATES: Final = "admin/resty_limits/limitpolicy"
KIND_LABELS: Final = {
    catalog.LimitKind.POLICY: gettext_lazy("Policy"),
    catalog.LimitKind.DECORATOR: gettext_lazy("Decorator"),
    catalog.LimitKind.THROTTLE: gettext_lazy("Throttle"),
    catalog.LimitKind.FUNCTION: gettext_lazy("Function"),
    catalog.LimitKind.JOB: gettext_lazy("Jobs"),
    catalog.LimitKind.QUOTA: gettext_lazy("Quota"),
    catalog.LimitKind.BAN: gettext_lazy("Bans"),
    OTHER_LIMITS: gettext_lazy("Several"),
}


@dataclass
class ListedLimit:
    """A limit in the list. `url`: its page of figures. `rows_url`: rows of a quota, or bans of a limit; else "".

    `spec`: of a policy. `row`: of a policy that the database has, so that it can be edited.
    """

    series: str
    url: str
    rates: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    spec: PolicySpec | None = None
    row: LimitPolicy | None = None
    rows_url: str = ""
    figures: LimitFigures = field(default_factory=lambda: LimitFigures(""))

    @property
    def kind_label(self) -> Any:
        return KIND_LABELS[OTHER_LIMITS if self.series == OTHER_LIMITS else catalog.kind_and_name(self.series)[0]]

    @property
    def name(self) -> str:
        """The name, with invisible characters escaped."""
        return printable(catalog.kind_and_name(self.series)[1], columns.MAX_SHOWN_CHARACTERS)

    @property
    def rate(self) -> str:
        if self.spec is not None:
            return str(_("not valid")) if find_problems(self.spec) else describe(self.spec)
        return printable("; ".join(self.rates), 400)

    @property
    def words(self) -> SafeString | str:
        return self.rate if self.spec is None else in_words(self.spec)

    @property
    def applies_to(self) -> SafeString:
        return SafeString("") if self.spec is None else applies_to(self.spec)

    @property
    def places(self) -> list[str]:
        return [printable(location, columns.MAX_SHOWN_CHARACTERS) for location in self.locations]

    @property
    def query(self) -> str:
        """The query that fills the form with the fields of a policy that differ from their defaults."""
        names = [field.name for field in fields(PolicySpec) if getattr(self.spec, field.name) != field.default]
        return urlencode({name: getattr(self.spec, name) for name in names})

    def matches(self, text: str) -> bool:
        """Return whether the kind, the name, a location or a field of the policy contains the text, in any case."""
        values = () if self.spec is None else (getattr(self.spec, field.name) for field in fields(PolicySpec))
        parts = (self.kind_label, self.name, *self.locations, *values)
        return any(text.casefold() in str(part).casefold() for part in parts)


class AllLimitsAdmin(ModesAdmin):
    """Pages about all limits, for users who may view policies."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """List all limits, those with the most refusals in the last hour first; `q` searches, `o` sorts.

        A POST runs an action on selected policies.
        """
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            response = self._explained(self.response_action, request, self.get_queryset(request))
            return response or HttpResponseRedirect(request.get_full_path())
        text = request.GET.get("q", "").strip()[:200]
        error = ""
        try:
            stats.flush()
            limits = self.listed_limits(stats.names())
        except Exception as fault:  # settings without the dictionary, a store that is down, foreign data
            limits, error = self.listed_limits(()), why(fault)
        limits = [limit for limit in limits if limit.matches(text)]
        add_figures(limits)
        limits.sort(key=_most_refused)
        limits_listing = listing(request, columns.ALL_LIMIT_COLUMNS, limits, find="")
        page = Paginator(limits_listing.rows, 50).get_page(request.GET.get("page"))
        add_figures(page, top=True)
        for limit in page:
            limit.rows_url = self._rows_url(request, limit.series)
            error = error or limit.figures.error
        selectable = [limit for limit in page if limit.row]
        action_form = self.action_form(auto_id=None)
        action_form.fields["action"].choices = self.get_action_choices(request)
        context = {
            "title": capfirst(self.opts.verbose_name_plural),
            "page_of_limits": page,
            "error": error,
            "q": text,
            "heads": limits_listing.heads,
            "order": request.GET.get("o", ""),
            "query": query_without(request, "page").urlencode(),
            "outages": outages(),
            "exports": [limits_listing.sheet("limits")],
            "action_form": action_form if selectable else None,
            "actions_selection_counter": True,
            "selection_note": _("0 of %(cnt)s selected") % {"cnt": len(selectable)},
            "cl": {"result_list": selectable, "result_count": len(selectable)},  # of Django's template for actions
            "has_add_permission": self.has_add_permission(request),
            "has_change_permission": self.has_change_permission(request),
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
            limit = next((limit for limit in self.listed_limits(stats.names()) if limit.series == series), None)
            limit_figures = None
        except Exception as fault:
            limit = ListedLimit(series, "")
            limit_figures = LimitFigures(series, error=why(fault))
        if limit is None:
            raise Http404(f"No limit is counted as {printable(series, columns.MAX_SHOWN_CHARACTERS)!r}.")
        if limit_figures is None:
            (limit_figures,) = figures([series], top=True)
        context = {"subtitle": limit.name, "limit": limit, "words": limit.words, "label": limit.kind_label}
        return self.figures_page(request, limit_figures, context)

    def figures_page(self, request: HttpRequest, shown: LimitFigures, context: dict[str, Any]) -> HttpResponse:
        """Return the page with the statistics of a limit. `context`: the name and the description of the limit."""
        keys = refused_keys(request, shown)
        context |= {"title": _("Figures"), "figures": shown, "refused_keys": keys, "outages": outages()}
        return self.page(request, f"{TEMPLATES}/figures.html", context)

    def listed_limits(self, counted: Iterable[str]) -> list[ListedLimit]:
        """Return all limits: policies, limits of this process, and those that are `counted`, also by other processes.

        Raise `SharedDictError` if the store does not answer, for limits of other processes.
        """
        rows = {row.name: row for row in LimitPolicy.objects.newest()}
        try:
            policies = registry.all_policies()
        except BadPolicy:  # a rule in the settings is not valid; a system check reports it
            policies = {}
        limits = []
        for series in dict.fromkeys((*rows, *policies, *catalog.counted_limits(), *counted)):
            row = rows.get(series)
            url = f"{reverse(self.url_name('limit_figures'))}?{urlencode({'limit': series})}"
            if row is not None:
                url = reverse(self.url_name("figures"), args=[row.pk])
                limits.append(ListedLimit(series, url, spec=row.spec(), row=row))
            elif series in policies:
                limits.append(ListedLimit(series, url, spec=policies[series].spec))
            else:
                limits.append(ListedLimit(series, url, *stats.description(series)))
        return limits

    def _rows_url(self, request: HttpRequest, series: str) -> str:
        """Return the page with the rows of a quota, or the bans of a limit, if the user may view it; else ""."""
        kind, name = catalog.kind_and_name(series)
        model, parameter = {
            catalog.LimitKind.QUOTA: (QuotaUsage, "quota"),
            catalog.LimitKind.BAN: (KeyBan, "find"),
        }.get(kind, (None, ""))
        if model is None or not self.admin_site.is_registered(model):
            return ""
        if not self.admin_site.get_model_admin(model).has_view_or_change_permission(request):
            return ""
        changelist = reverse(f"{self.admin_site.name}:{model._meta.app_label}_{model._meta.model_name}_changelist")
        return f"{changelist}?{urlencode({parameter: name})}"


def add_figures(limits: Iterable[ListedLimit], *, top: bool = False) -> None:
    """Read the figures of limits; `top`: with the most refused keys. Never raise."""
    listed = list(limits)
    for limit, limit_figures in zip(listed, figures([limit.series for limit in listed], top=top), strict=True):
        limit.figures = limit_figures


def _most_refused(limit: ListedLimit) -> tuple[int, int, bool, str]:
    """Of limits without requests, policies come first."""
    hour = limit.figures.hour
    return -(hour.refused + hour.shadowed), -hour.all, limit.spec is None, limit.series


def in_words(spec: PolicySpec) -> SafeString:
    """Return the limit of a policy in words, or why the policy is not valid."""
    problems = find_problems(spec)
    if not problems:
        tiers = [f"{tier}: {words}" for tier, words in describe_tiers(spec).items()]
        return format_html("{}{}{}", describe_rates(spec), _quiet_lines(tiers), _quiet_lines(describe_bans(spec)))
    texts = [f"{name}: {text}" for name, text in problems.items()]
    return format_html(_('<span class="resty-alarm">Not valid.</span> {}'), " ".join(texts))


def applies_to(spec: PolicySpec) -> SafeString:
    """Return the conditions of a policy, and its exemptions."""
    texts = {
        "exempt_users": _("not user %(entry)s"),
        "exempt_networks": _("not network %(entry)s"),
        "exempt_groups": _("not group %(entry)s"),
        "exempt_paths": _("not path %(entry)s"),
    }
    exempt = [texts[field] % {"entry": entry} for field in EXEMPTION_FIELDS for entry in lines_of(getattr(spec, field))]
    return format_html("{}{}", _conditions(spec), _quiet_lines(exempt))


def _conditions(spec: PolicySpec) -> SafeString:
    if not spec.matches_requests:
        return format_html('<span class="resty-quiet">{}</span>', _("where code names it"))
    labels = {"methods": "", "path": "", "route": "route ", "view": "view "}
    parts = ((label, getattr(spec, name)) for name, label in labels.items() if is_set(getattr(spec, name)))
    return format_html_join(" ", "{}<code>{}</code>", parts)


def _quiet_lines(lines: Iterable[str]) -> SafeString:
    """Return the first five lines, each after a line break."""
    listed = list(lines)
    more = len(listed) - 5
    texts = [*listed[:5], *([_("and %(count)s more") % {"count": number(more)}] if more > 0 else [])]
    return format_html_join(
        "",
        '<br><span class="resty-quiet">{}</span>',
        ((printable(text, columns.MAX_SHOWN_CHARACTERS),) for text in texts),
    )
