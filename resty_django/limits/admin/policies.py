"""The admin of policies: the form, and the pages of a policy."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import object_page
from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.admin.statistics import KeyView, key_of
from resty_django.shdict import SharedDictError

from ..errors import LimitError
from ..models import LimitPolicy
from ..policies import registry, simulation
from ..policies.policy_set import limiters_of, limiters_of_tiers
from ..specs.policy import PolicySpec, describe_tiers, is_set, tier_spec, tier_specs
from ..specs.policy_validation import find_problems
from .all_limits import AllLimitsAdmin, in_words
from .forms import LimitPolicyForm, ResetForm, TrialForm
from .key_search import KeySearchAdmin
from .modes import EditableAdmin
from .statistics import figures

TEMPLATES = "admin/resty_limits/limitpolicy"


def _reset_key(row: LimitPolicy, data: dict[str, Any]) -> OperationResult:
    key = KeyView.of(data["key"]).text
    spec = row.spec()
    if find_problems(spec):
        raise Refused(_("The policy is not valid. Correct it first."))
    limiters = itertools.chain(limiters_of(spec), *limiters_of_tiers(spec).values())
    reset = [limiter.reset(data["key"]) for limiter in limiters]
    if not any(reset):
        text = _("The key “%(key)s” has no stored state. It may have expired, or the key is misspelt.")
        raise Refused(text % {"key": key})
    return OperationResult(
        f"Reset the key “{key}”.", format_html(_('Reset the key <code class="resty-id">{}</code>.'), key)
    )


class LimitPolicyAdmin(AllLimitsAdmin, KeySearchAdmin):
    form = LimitPolicyForm
    refusals: ClassVar = (LimitError, SharedDictError)
    operations = (
        Operation(
            "reset_key",
            gettext_lazy("Reset a key"),
            "reset_key",
            _reset_key,
            form=lambda data, row, token: ResetForm(data, token),
            explain=lambda row, token: {"key": KeyView.of(key_of(token)), "words": in_words(row.spec())},
            keyed=True,
            button=gettext_lazy("Reset"),
            template=f"{TEMPLATES}/reset_key.html",
        ),
    )
    readonly_fields = ("in_words", *EditableAdmin.readonly_fields)
    change_form_template = f"{TEMPLATES}/change_form.html"
    fieldsets: ClassVar = [
        (
            None,
            {
                "fields": ["route", "rate", "key", "name"],
                "description": gettext_lazy("Write times and rates with their unit: 200/s, 30/min, 1h, 500ms."),
            },
        ),
        (
            gettext_lazy("Algorithm and numbers"),
            {
                "fields": [
                    "algorithm",
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
                "description": gettext_lazy("Numbers of other algorithms are removed."),
            },
        ),
        (
            gettext_lazy("Requests"),
            {
                "fields": ["path", "view", "methods", "cost"],
                "description": gettext_lazy(
                    "The policy applies to requests that match all of these conditions, and the route. Without path, "
                    "route and view it applies only where code names it."
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
        (gettext_lazy("Refusals and bans"), {"fields": ["status", "on_error", "ban", "ban_after"]}),
        (gettext_lazy("Mode and description"), {"fields": ["mode", "order", "description"]}),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: LimitPolicy | None = None) -> Any:
        """Fold the sections whose fields have their defaults. The algorithm alone does not open its section."""
        fresh = LimitPolicy()

        def is_default(name: str) -> bool:
            value = request.GET.get(name, "") if obj is None else getattr(obj, name)
            return name == "algorithm" or not is_set(value) or str(value) == str(getattr(fresh, name))

        sections: list[Any] = []
        for title, section in self.fieldsets:
            names: Any = section["fields"]
            if title is None and obj is not None:
                sections.append((title, {**section, "fields": ["in_words", *names]}))
            elif title is None or not all(map(is_default, names)):
                sections.append((title, section))
            else:
                sections.append((title, {**section, "classes": ["collapse"]}))
        return sections if obj is None else [*sections, self.written]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Begin with the algorithm that needs nothing but a rate, and lets bursts pass."""
        return {"algorithm": "sliding_window", **super().get_changeform_initial_data(request)}

    @admin.display(description=gettext_lazy("in words"))
    def in_words(self, row: LimitPolicy) -> SafeString:
        return in_words(row.spec())

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
            self.page_url("limit_figures", self.limit_figures_view, "limits/figures/"),
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
            "subtitle": str(row),
            "object": row,
            "words": in_words(row.spec()),
            "label": row.get_mode_display(),
            "may_reset": self.may(request, "reset_key", row),
        }
        return self.figures_page(request, row_figures, context)

    @object_page
    def try_view(self, request: HttpRequest, row: LimitPolicy) -> HttpResponse:
        """Simulate the policy with a series of requests. Nothing is stored."""
        spec = row.spec()
        problems = find_problems(spec)
        specs = {} if problems else limits_of(spec)
        form = TrialForm(request.GET if "arrivals" in request.GET else None, specs)
        steps: list[simulation.SimulatedRequest] = []
        if form.is_valid() and not problems:
            cleaned = form.cleaned_data
            steps = list(
                simulation.run(
                    specs.get(cleaned.get("limit", ""), spec),
                    cleaned["arrivals"],
                    cleaned["interval"],
                    cleaned.get("lasts", 0.0),
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
            "tried_key": KeyView.of(form.cleaned_data["key"]).text if steps else "",
            "concurrent": spec.algorithm == "concurrency",
        }
        return self.page(request, f"{TEMPLATES}/try.html", context)


def limits_of(spec: PolicySpec) -> dict[str, PolicySpec]:
    """Return the limits of a valid policy, with names for a list of choices: its own numbers first, then its tiers."""
    limited = [tier for tier, specs in tier_specs(spec).items() if specs]
    words = describe_tiers(spec)
    return {_("The policy's own"): spec} | {f"{tier}: {words[tier]}": tier_spec(spec, tier) for tier in limited}
