"""The admin of counters: positions, forecasts and manual operations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import PermissionDenied
from django.db.models import F, FloatField, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import NoEditing, shown_time
from resty_django.admin.export import moment, plain_text
from resty_django.admin.formatting import NONE, duration, number, percent
from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.conf import conf

from .. import operations, store
from ..engine.wall_clock import wall_at
from ..errors import BadRule
from ..forecast import annotate_runs_out
from ..models import IdCounter, IdRule
from ..overview import LOW_SHARE
from ..preview import preview
from .base import ServiceAdmin, issue_one
from .forms import IssueForm, LowerForm, NumberForm, StepForm
from .statistics import CounterStatistics

TEMPLATES: Final = "admin/resty_ids/idcounter"


class RoomFilter(SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[IdCounter]) -> list[tuple[str, str]]:
        return [
            ("near", _("near exhaustion (%(share)s used)") % {"share": percent(1 - LOW_SHARE)}),
            ("used_up", _("used up")),
            ("ahead", _("ahead of the clock")),
            ("step", _("step to confirm")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "near":
                return queryset.filter(_by_zone(lambda wall: Q(cycle_end__gt=wall)), used__gte=1 - LOW_SHARE)
            case "used_up":
                return queryset.filter(_by_zone(lambda wall: Q(cycle_end__gt=wall)), bound__gt=F("rule__max_counter"))
            case "ahead":
                return queryset.filter(_by_zone(lambda wall: Q(cycle_start__gt=wall) | Q(shown__gt=wall)))
            case "step":
                return queryset.exclude(step=conf.ids.step)
        return queryset


def _by_zone(condition: Callable[[int], Q]) -> Q:
    """Return a condition on the current wall second in each rule's time zone."""
    matches, now = Q(pk__in=[]), time.time()
    for zone in set(IdRule.objects.using(store.database()).values_list("timezone", flat=True)):
        try:
            wall = wall_at(now, IdRule(timezone=zone).spec().zone)
        except BadRule:
            wall = int(now)
        matches |= Q(rule__timezone=zone) & condition(wall)
    return matches


def _issue(counter: IdCounter, data: dict[str, Any]) -> OperationResult:
    if not is_ours(counter):
        raise PermissionDenied(f"This counter belongs to another node. This site is node {conf.ids.offset}.")
    return issue_one(counter.rule, counter.app_name, data["salt"])


def _raise(counter: IdCounter, data: dict[str, Any]) -> OperationResult:
    done = operations.raise_counter(counter, to=data["to"])
    template = _("Counter %(counter)s: raised: the next number was %(before)s and is now %(after)s.")
    return _set(counter, "Raised", done, template)


def _lower(counter: IdCounter, data: dict[str, Any]) -> OperationResult:
    back = bool(data.get("cycle_back"))
    done = operations.lower_counter(counter, to=data["to"], cycle_back=back)
    template = (
        _(
            "Counter %(counter)s: lowered, and its cycle set back to now: the next number was %(before)s and is now "
            "%(after)s."
        )
        if back
        else _("Counter %(counter)s: lowered: the next number was %(before)s and is now %(after)s.")
    )
    entry = "Lowered, and its cycle set back to now" if back else "Lowered"
    return _set(counter, entry, done, template)


def _confirm(counter: IdCounter, data: dict[str, Any]) -> OperationResult:
    if counter.step == conf.ids.step:
        text = _("The counter already has this site’s step, %(step)s. Nothing was changed.")
        raise Refused(text % {"step": conf.ids.step})
    done = operations.confirm_step(counter, floor=data["to"])
    template = _(
        "Counter %(counter)s: step %(old)s changed to %(new)s, floor %(floor)s: the next number was %(before)s and "
        "is now %(after)s."
    )
    values = {"old": counter.step, "new": done.step, "floor": data["to"]}
    entry = f"Step {counter.step} changed to {done.step}, floor {data['to']}"
    return _set(counter, entry, done, template, **values)


def _set(counter: IdCounter, entry: str, done: IdCounter, template: str, **values: object) -> OperationResult:
    """Return the change. Its message begins with a word, because the admin capitalizes the first letter, and a rule's
    name must keep its case."""
    before, after = f"{counter.bound:,}", f"{done.bound:,}"
    message = template % {"counter": done, "before": number(counter.bound), "after": number(done.bound), **values}
    return OperationResult(f"{entry}: the next number was {before} and is now {after}.", message)


def _explain(counter: IdCounter) -> dict[str, object]:
    return {"statistics": CounterStatistics.of(counter), "ids": conf.ids}


def _column(
    label: Any, ordering: str | Combinable, text: Callable[[CounterStatistics], str]
) -> Callable[[IdCounterAdmin, IdCounter], str]:
    """Return a column that shows a text of the counter's statistics."""

    @admin.display(description=label, ordering=ordering)
    def column(self: IdCounterAdmin, counter: IdCounter) -> str:
        return text(CounterStatistics.of(counter))

    return column


class IdCounterAdmin(NoEditing, ServiceAdmin[IdCounter]):
    list_display = ("app", "rule", "position", "head_room", "outlook", "cycle", "age")
    list_filter = (RoomFilter, "rule")
    search_fields = ("app_name",)
    search_help_text = gettext_lazy("Application name")
    list_select_related = ("rule",)
    list_per_page = 50
    actions = None
    operations = (
        Operation(
            "issue",
            gettext_lazy("Issue one ID now"),
            "issue_id",
            _issue,
            form=IssueForm,
            button=gettext_lazy("Issue"),
            template="admin/resty_ids/issue.html",
        ),
        Operation(
            "raise",
            gettext_lazy("Raise a counter"),
            "raise_idcounter",
            _raise,
            form=NumberForm,
            explain=_explain,
            button=gettext_lazy("Raise"),
            template=f"{TEMPLATES}/raise.html",
        ),
        Operation(
            "lower",
            gettext_lazy("Lower a counter"),
            "lower_idcounter",
            _lower,
            form=LowerForm,
            explain=_explain,
            button=gettext_lazy("Lower the counter: IDs will repeat"),
            danger=True,
            template=f"{TEMPLATES}/lower.html",
        ),
        Operation(
            "confirm_step",
            gettext_lazy("Confirm a changed step"),
            "confirm_step",
            _confirm,
            form=StepForm,
            explain=lambda counter: {
                **_explain(counter),
                "button": _("Confirm step %(step)s") % {"step": conf.ids.step},
            },
            template=f"{TEMPLATES}/confirm_step.html",
        ),
    )
    change_list_template = "admin/resty_django/live_change_list.html"
    change_form_template = f"{TEMPLATES}/change_form.html"
    fieldsets: ClassVar = [
        (None, {"fields": ["rule_link", "app", "state"]}),
        (gettext_lazy("Numbers"), {"fields": ["position", "next_number", "head_room", "used", "outlook"]}),
        (gettext_lazy("Cycle"), {"fields": ["cycle", "zone", "shown_time", "shown_cycle_began", "cycle_first"]}),
        (gettext_lazy("Written"), {"fields": ["shown_created_at", "shown_updated_at"]}),
    ]

    readonly_fields: ClassVar = flatten_fieldsets(fieldsets)

    def get_queryset(self, request: HttpRequest) -> QuerySet[IdCounter]:
        used = Cast(F("bound") - F("rule__min_counter"), FloatField())
        size = Cast(F("rule__max_counter") - F("rule__min_counter") + 1, FloatField())
        counters = IdCounter._default_manager.select_related("rule").annotate(used=used / size)
        return annotate_runs_out(counters, store.database())

    def get_ordering(self, request: HttpRequest) -> list[str | Combinable]:
        """Show the counter that runs out first in the first row."""
        return ["runs_out", "-used", "pk"]

    def export_columns(self, request: HttpRequest) -> dict[str, Callable[[IdCounter], object]]:
        statistics = CounterStatistics.of
        return {
            "app": lambda counter: counter.app_name,
            "rule": lambda counter: counter.rule.name,
            "node": lambda counter: counter.node_offset,
            "step": lambda counter: counter.step,
            "position": lambda counter: statistics(counter).position,
            "numbers_left": lambda counter: statistics(counter).left,
            "used_share": lambda counter: statistics(counter).used,
            "forecast": lambda counter: statistics(counter).forecast.outlook.value,
            "runs_out": lambda counter: moment(statistics(counter).runs_out_at),
            "numbers_per_second": lambda counter: statistics(counter).forecast.pace,
            "cycle": lambda counter: plain_text(statistics(counter).cycle),
            "updated": lambda counter: counter.updated_at,
        }

    # --- columns and statistics ---------------------------------------------------------------------------------------

    shown_cycle_began = shown_time("cycle_began", gettext_lazy("cycle began"))

    @admin.display(description=gettext_lazy("app"), ordering="app_name")
    def app(self, counter: IdCounter) -> SafeString | str:
        """The name of the application and, if there are several nodes, the node."""
        name = counter.app_name or _("(empty)")
        if counter.step == conf.ids.step == 1:
            return name
        return format_html('{} <span class="resty-quiet">({})</span>', name, self.node(counter))

    @admin.display(description=gettext_lazy("node"), ordering="node_offset")
    def node(self, counter: IdCounter) -> SafeString | str:
        text = _("%(number)s of %(count)s") % {"number": counter.node_offset, "count": counter.step}
        if counter.step == conf.ids.step:
            return text
        return format_html(
            '<span class="resty-alarm" title="{}">{}</span>',
            _("This site’s step is %(step)s.") % {"step": conf.ids.step},
            text,
        )

    @admin.display(description=gettext_lazy("position"), ordering="bound")
    def position(self, counter: IdCounter) -> str:
        position = CounterStatistics.of(counter).position
        return NONE if position is None else number(position)

    head_room = _column(gettext_lazy("numbers left"), F("used") * -1, lambda statistics: statistics.head_room)
    used = _column(gettext_lazy("used"), "used", lambda statistics: percent(statistics.used))
    outlook = _column(gettext_lazy("forecast"), "runs_out", lambda statistics: statistics.outlook)
    cycle = _column(gettext_lazy("cycle"), "cycle_start", lambda statistics: statistics.cycle)
    age = _column(gettext_lazy("last update"), "updated_at", lambda statistics: statistics.age)

    @admin.display(description=gettext_lazy("rule"))
    def rule_link(self, counter: IdCounter) -> SafeString:
        url = reverse(f"{self.admin_site.name}:resty_ids_idrule_change", args=[counter.rule_id])
        return format_html('<a href="{}">{}</a>', url, counter.rule.name)

    @admin.display(description=gettext_lazy("next number"))
    def next_number(self, counter: IdCounter) -> str:
        statistics = CounterStatistics.of(counter)
        return number(statistics.next) if statistics.left else _("none left")

    @admin.display(description=gettext_lazy("time zone"))
    def zone(self, counter: IdCounter) -> str:
        return str(CounterStatistics.of(counter).zone)

    @admin.display(description=gettext_lazy("latest time shown"))
    def shown_time(self, counter: IdCounter) -> str:
        return CounterStatistics.of(counter).clock(counter.shown)

    @admin.display(description=gettext_lazy("state"))
    def state(self, counter: IdCounter) -> SafeString:
        statistics, states = CounterStatistics.of(counter), []
        if counter.step != conf.ids.step:
            states.append(
                _(
                    "Requests are refused: the counter was created with step %(old)s, but this site’s step is %(new)s. "
                    "Confirm the step to continue."
                )
                % {"old": counter.step, "new": conf.ids.step}
            )
        if statistics.ahead > 60:
            states.append(
                _(
                    "The counter’s time is %(time)s ahead of this clock and stays there until the clock catches "
                    "up. If a wrong clock was the cause, lower the counter and set its cycle back."
                )
                % {"time": duration(statistics.ahead)}
            )
        if not statistics.left:
            states.append(_("All numbers of this cycle are reserved."))
        if not counter.rule.enabled:
            states.append(_("The rule is disabled."))
        if not states:
            return format_html("{}", "OK")
        return format_html('<span class="resty-alarm">{}</span>', " ".join(states))

    # --- pages -----------------------------------------------------------------------------------------------------

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        counter = context.get("original")
        if counter is not None:
            context |= {
                "preview": preview(counter.rule, counter=counter, app=counter.app_name),
                **self.allowed_actions(request, counter),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def allowed_actions(self, request: HttpRequest, counter: IdCounter) -> dict[str, bool]:
        """Return, by action name, whether the user may run the action on this counter."""
        return {
            "may_issue": self.may(request, "issue_id", counter) and is_ours(counter),
            "may_raise": self.may(request, "raise_idcounter", counter),
            "may_lower": self.may(request, "lower_idcounter", counter),
            "may_confirm": self.may(request, "confirm_step", counter) and counter.step != conf.ids.step,
        }

    def get_urls(self) -> list[URLPattern]:
        return [
            *self.operation_urls(),
            *super().get_urls(),
        ]


def is_ours(counter: IdCounter) -> bool:
    """Return whether the counter belongs to this site's node."""
    return counter.node_offset == conf.ids.offset
