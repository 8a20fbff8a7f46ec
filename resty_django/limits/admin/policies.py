"""The admin of policies: the list with statistics, the form, and the pages of a policy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import object_page
from resty_django.admin.export import query_without
from resty_django.admin.formatting import NONE, number
from resty_django.admin.operations import Change, Operation, Refused
from resty_django.admin.statistics import Key, key_of
from resty_django.admin.tables import filter_of, listing
from resty_django.shdict import SharedDictError
from resty_django.text import printable

from ..errors import LimitError
from ..models import LimitPolicy
from ..policies import registry, simulation
from ..policies.policy_set import limiters_of, limiters_of_tiers
from ..specs.lines import EXEMPTIONS, LINE_FIELDS, lines_of
from ..specs.policy import PolicySpec, describe_bans, describe_rates, describe_tiers, is_set, tier_spec, tier_specs
from ..specs.policy_validation import BadPolicy, find_problems
from . import columns
from .all_limits import AllLimitsAdmin
from .forms import LimitPolicyForm, ResetForm, TrialForm
from .key_search import KeySearchAdmin
from .modes import ModesAdmin
from .statistics import figures, outages, refused_keys

TEMPLATES = "admin/resty_limits/limitpolicy"
OWN_NUMBERS: Final = gettext_lazy("The policy's own")
_EXEMPTED: Final = {
    "exempt_users": gettext_lazy("not user %(entry)s"),
    "exempt_networks": gettext_lazy("not network %(entry)s"),
    "exempt_groups": gettext_lazy("not group %(entry)s"),
    "exempt_paths": gettext_lazy("not path %(entry)s"),
}
SHOWN_ENTRIES: Final = 5
"""The maximum number of tiers or exemptions that the list shows."""


def _reset_key(row: LimitPolicy, data: dict[str, Any]) -> Change:
    key = Key.of(data["key"]).text
    spec = row.spec()
    if find_problems(spec):
        raise Refused(_("The policy is not valid. Correct it first."))
    limiters = itertools.chain(limiters_of(spec), *limiters_of_tiers(spec).values())
    reset = [limiter.reset(data["key"]) for limiter in limiters]
    if not any(reset):
        text = _("The key “%(key)s” has no stored state. It may have expired, or the key is misspelt.")
        raise Refused(text % {"key": key})
    return Change(f"Reset the key “{key}”.", format_html(_('Reset the key <code class="resty-id">{}</code>.'), key))


class LimitPolicyAdmin(ModesAdmin, AllLimitsAdmin, KeySearchAdmin):
    form = LimitPolicyForm
    refusals: ClassVar = (LimitError, SharedDictError)
    operations = (
        Operation(
            "reset_key",
            gettext_lazy("Reset a key"),
            "reset_key",
            _reset_key,
            form=lambda data, row, token: ResetForm(data, token),
            explain=lambda row, token: {"key": Key.of(key_of(token)), "words": in_words(row.spec())},
            keyed=True,
            button=gettext_lazy("Reset"),
            template=f"{TEMPLATES}/reset_key.html",
        ),
    )
    list_display = ("name", "words", "key", "applies_to", "mode_now", "last_hour")
    list_filter = ("mode", "algorithm")
    search_fields = ("name", "description", "path", "route", "view", *LINE_FIELDS)
    search_help_text = gettext_lazy("Name, description, path, route, view, tier or exemption")
    list_per_page = 50
    readonly_fields = ("in_words", "version", "shown_created_at", "shown_updated_at")
    change_form_template = f"{TEMPLATES}/change_form.html"
    change_list_template = f"{TEMPLATES}/change_list.html"
    fieldsets: ClassVar = [
        (None, {"fields": ["name", "description", "mode"]}),
        (
            gettext_lazy("Limit"),
            {
                "fields": [
                    "algorithm",
                    "rate",
                    "limit",
                    "window",
                    "burst",
                    "interval",
                    "capacity",
                    "quantum",
                    "max_wait",
                    "default_delay",
                    "lease",
                    "tiers",
                ],
                "description": gettext_lazy(
                    "Write times and rates with their unit: 200/s, 30/min, 1h, 500ms. Numbers of other "
                    "algorithms are removed."
                ),
            },
        ),
        (gettext_lazy("Grouping"), {"fields": ["key", "cost"]}),
        (
            gettext_lazy("Requests"),
            {
                "fields": ["path", "route", "view", "methods"],
                "description": gettext_lazy(
                    "The policy applies to requests that match all of these conditions. Without path, route "
                    "and view it applies only where code names it."
                ),
            },
        ),
        (
            gettext_lazy("Exemptions"),
            {
                "fields": ["exempt_networks", "exempt_users", "exempt_groups", "exempt_paths"],
                "description": gettext_lazy(
                    "Requests to which one of these entries applies are neither counted nor limited."
                ),
            },
        ),
        (gettext_lazy("Bans"), {"fields": ["ban", "ban_after"]}),
        (gettext_lazy("Else"), {"fields": ["on_error", "status", "order"]}),
    ]
    written: ClassVar = (gettext_lazy("Written"), {"fields": [("version", "shown_created_at", "shown_updated_at")]})

    class Media:
        css: ClassVar = {"all": ["resty_limits/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[LimitPolicy]:
        return super().get_queryset(request).using(router.db_for_write(LimitPolicy))

    def get_fieldsets(self, request: HttpRequest, obj: LimitPolicy | None = None) -> Any:
        if obj is None:
            return self.fieldsets
        (first, top), *others = self.fieldsets
        return [(first, {**top, "fields": [*top["fields"], "in_words"]}), *others, self.written]

    # --- list ------------------------------------------------------------------------------------------------------

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        rows = list(changelist.result_list)
        for row, row_figures in zip(rows, figures([row.name for row in rows]), strict=True):
            row.figures = row_figures
        changelist.result_list = rows
        return changelist

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {
            "declared": listing(
                request, columns.DECLARED, self._declared(), name="declared", find=filter_of(request, "q")
            ),
            "outages": outages(),
            **(extra_context or {}),
        }
        request.GET = query_without(request, "o-declared")  # type: ignore[assignment] # Django rejects unknown names
        return super().changelist_view(request, context)

    def export_columns(self, request: HttpRequest) -> dict[str, Callable[[Any], Any]]:
        """Return the columns of the list but its drawings; "All limits" exports the counts."""
        return {name: value for name, value in super().export_columns(request).items() if name != "last_hour"}

    def _declared(self) -> list[dict[str, Any]]:
        """Return the policies that are declared in code and not replaced by a row."""
        try:
            specs = registry.declared_policies()
        except BadPolicy:  # a rule in the settings is not valid; a system check reports it
            return []
        stored = set(LimitPolicy.objects.newest().values_list("name", flat=True))
        add = reverse(self.url_name("add"))
        return [
            {"spec": spec, "words": in_words(spec), "url": f"{add}?{_query(spec)}"}
            for name, spec in sorted(specs.items())
            if name not in stored
        ]

    @admin.display(description=gettext_lazy("limit"))
    def words(self, row: LimitPolicy) -> SafeString:
        return in_words(row.spec())

    @admin.display(description=gettext_lazy("in words"))
    def in_words(self, row: LimitPolicy) -> SafeString:
        return in_words(row.spec())

    @admin.display(description=gettext_lazy("applies to"))
    def applies_to(self, row: LimitPolicy) -> SafeString:
        return applies_to(row.spec())

    @admin.display(description=gettext_lazy("mode"), ordering="mode")
    def mode_now(self, row: LimitPolicy) -> str:
        return row.mode

    @admin.display(description=gettext_lazy("last hour"))
    def last_hour(self, row: Any) -> SafeString | str:
        if row.figures.error:
            return NONE
        url = reverse(self.url_name("figures"), args=[row.pk])
        return format_html(
            '<a class="resty-spark" href="{}">{}</a><br><span class="resty-quiet">{}</span>',
            url,
            row.figures.spark,
            row.figures.words,
        )

    # --- form ------------------------------------------------------------------------------------------------------

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        row = context.get("original")
        if row is not None:
            context["may_reset"] = self.may(request, "reset_key", row)
            context["fault"] = registry.policy_faults().get(row.name, "") if find_problems(row.spec()) else ""
        return super().render_change_form(request, context, *args, **kwargs)

    # --- pages of one policy ---------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        return [
            *self.all_limits_urls(),
            *self.key_search_urls(),
            self.page_url("figures", self.figures_view),
            self.page_url("try", self.try_view),
            *self.operation_urls(),
            *super().get_urls(),
        ]

    @object_page
    def figures_view(self, request: HttpRequest, row: LimitPolicy) -> HttpResponse:
        """Show the statistics of the policy."""
        (row_figures,) = figures([row.name], top=True)
        context = {
            "title": _("Figures"),
            "subtitle": str(row),
            "object": row,
            "words": in_words(row.spec()),
            "figures": row_figures,
            "refused_keys": refused_keys(request, row_figures),
            "outages": outages(),
            "may_reset": self.may(request, "reset_key", row),
        }
        return self.page(request, f"{TEMPLATES}/figures.html", context)

    @object_page
    def try_view(self, request: HttpRequest, row: LimitPolicy) -> HttpResponse:
        """Simulate the policy with a series of requests. Nothing is stored."""
        spec = row.spec()
        problems = find_problems(spec)
        specs = {} if problems else limits_of(spec)
        form = TrialForm(request.GET if "arrivals" in request.GET else None, specs)
        steps: list[simulation.Step] = []
        if form.is_valid() and not problems:
            cleaned = form.cleaned_data
            steps = list(
                simulation.run(
                    specs.get(cleaned.get("limit", ""), spec),
                    cleaned["arrivals"],
                    cleaned["interval"],
                    cleaned.get("lasts", 0.0),
                    cleaned["key"],
                )
            )
        outcomes = [step.outcome for step in steps]
        context = {
            "title": _("Try it"),
            "subtitle": str(row),
            "object": row,
            "words": in_words(spec),
            "form": form,
            "problems": problems,
            "steps": steps,
            "counted": {kind: outcomes.count(kind) for kind in ("passed", "delayed", "refused")},
            "tried_key": Key.of(form.cleaned_data["key"]).text if steps else "",
            "concurrent": spec.algorithm == "concurrency",
        }
        return self.page(request, f"{TEMPLATES}/try.html", context)


def in_words(spec: PolicySpec) -> SafeString:
    """Return the limit of a policy in words, or why the policy is not valid."""
    problems = find_problems(spec)
    if not problems:
        tiers = [f"{tier}: {words}" for tier, words in describe_tiers(spec).items()]
        return format_html("{}{}{}", describe_rates(spec), _quiet_lines(tiers), _quiet_lines(describe_bans(spec)))
    texts = [f"{name}: {text}" for name, text in problems.items()]
    return format_html(_('<span class="resty-alarm">Not valid.</span> {}'), " ".join(texts))


def limits_of(spec: PolicySpec) -> dict[str, PolicySpec]:
    """Return the limits of a valid policy, with names for a list of choices: its own numbers first, then its tiers."""
    limited = [tier for tier, specs in tier_specs(spec).items() if specs]
    words = describe_tiers(spec)
    return {str(OWN_NUMBERS): spec} | {f"{tier}: {words[tier]}": tier_spec(spec, tier) for tier in limited}


def applies_to(spec: PolicySpec) -> SafeString:
    """Return the conditions of a policy, and its exemptions."""
    exempt = [_EXEMPTED[field] % {"entry": entry} for field in EXEMPTIONS for entry in lines_of(getattr(spec, field))]
    return format_html("{}{}", _conditions(spec), _quiet_lines(exempt))


def _conditions(spec: PolicySpec) -> SafeString:
    if not spec.matches_requests:
        return format_html('<span class="resty-quiet">{}</span>', _("where code names it"))
    parts = [
        (name, getattr(spec, name)) for name in ("methods", "path", "route", "view") if is_set(getattr(spec, name))
    ]
    plain = {"methods", "path"}
    return format_html_join(
        " ", "{}<code>{}</code>", (("" if name in plain else f"{name} ", value) for name, value in parts)
    )


def _quiet_lines(lines: Iterable[str]) -> SafeString:
    """Return the first lines, each after a line break."""
    listed = list(lines)
    more = len(listed) - SHOWN_ENTRIES
    texts = [*listed[:SHOWN_ENTRIES], *([_("and %(count)s more") % {"count": number(more)}] if more > 0 else [])]
    return format_html_join("", '<br><span class="resty-quiet">{}</span>', ((printable(text, 200),) for text in texts))


def _query(spec: PolicySpec) -> str:
    """Return the fields of a policy that differ from their defaults, for the form."""
    values = {field.name: getattr(spec, field.name) for field in fields(PolicySpec)}
    return urlencode(
        {field.name: values[field.name] for field in fields(PolicySpec) if values[field.name] != field.default}
    )
