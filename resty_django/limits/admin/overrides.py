"""The admin of overrides: list and form."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from resty_django.admin.base import shown_time
from resty_django.conf import conf
from resty_django.text import printable

from ..models import LimitOverride
from ..specs.override import EVERYWHERE, find_problems, is_missing_policy
from ..specs.rates import BLOCKED, NONE
from .forms import LimitOverrideForm
from .modes import EditableAdmin, export_selected

TEMPLATES = "admin/resty_limits/limitoverride"


class TimeFilter(admin.SimpleListFilter):
    """Filters by whether overrides are in force."""

    title = _("time")
    parameter_name = "time"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("now", _("In force")),
            ("soon", _("Ending within 7 days")),
            ("later", _("Not yet in force")),
            ("ended", _("Ended")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[LimitOverride]) -> QuerySet[LimitOverride]:
        now = timezone.now()
        begun, lasting = Q(starts_at=None) | Q(starts_at__lte=now), Q(ends_at=None) | Q(ends_at__gt=now)
        conditions = {
            "now": begun & lasting,
            "soon": Q(ends_at__gt=now, ends_at__lte=now + timedelta(days=7)),
            "later": Q(starts_at__gt=now),
            "ended": Q(ends_at__lte=now),
        }
        condition = conditions.get(self.value() or "")
        return queryset if condition is None else queryset.filter(condition)


class EffectFilter(admin.SimpleListFilter):
    """Filters by the effect of overrides."""

    title = _("effect")
    parameter_name = "effect"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("rate", _("Another rate")), (NONE, _("No limit")), (BLOCKED, _("Blocked"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[LimitOverride]) -> QuerySet[LimitOverride]:
        if self.value() == "rate":
            return queryset.exclude(rate__in=(NONE, BLOCKED))
        return queryset.filter(rate=self.value()) if self.value() in (NONE, BLOCKED) else queryset


class LimitOverrideAdmin(EditableAdmin[LimitOverride]):
    form = LimitOverrideForm
    list_display = (
        "shown_key",
        "kind",
        "shown_limit",
        "rate",
        "state",
        "shown_starts_at",
        "shown_ends_at",
        "shown_reason",
    )
    list_filter = (TimeFilter, EffectFilter, "kind")
    search_fields = ("key", "limit", "rate", "reason")
    search_help_text = _("Key, limit, rate or reason")
    list_per_page = 50
    actions = (export_selected,)
    change_form_template = f"{TEMPLATES}/change_form.html"
    change_list_template = f"{TEMPLATES}/change_list.html"
    fieldsets: ClassVar = [
        (_("Requests"), {"fields": ["kind", "key", "limit"]}),
        (_("Limit"), {"fields": ["rate", "reason"]}),
        (_("Time"), {"fields": ["starts_at", "ends_at"]}),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: LimitOverride | None = None) -> Any:
        return self.fieldsets if obj is None else [*self.fieldsets, self.written]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"policies_only": conf.limits.overrides != EVERYWHERE, **(extra_context or {})}
        return super().changelist_view(request, context)

    shown_starts_at = shown_time("starts_at", _("from"))
    shown_ends_at = shown_time("ends_at", _("until"))

    @admin.display(description=_("key"), ordering="key")
    def shown_key(self, row: LimitOverride) -> str:
        return printable(row.key, 80)

    @admin.display(description=_("limit"), ordering="limit")
    def shown_limit(self, row: LimitOverride) -> str:
        return printable(row.limit, 80) or gettext("all limits")

    @admin.display(description=_("reason"))
    def shown_reason(self, row: LimitOverride) -> str:
        return printable(row.reason, 80)

    @admin.display(description=_("state"))
    def state(self, row: LimitOverride) -> SafeString | str:
        problems = find_problems(row.spec())
        if problems:
            return format_html(gettext('<span class="resty-alarm">Not valid.</span> {}'), " ".join(problems.values()))
        if is_missing_policy(row.limit):
            return format_html('<span class="resty-alarm">{}</span>', gettext("no such policy"))
        now = timezone.now()
        if row.ends_at is not None and row.ends_at <= now:
            return gettext("ended")
        return gettext("not yet") if row.starts_at is not None and row.starts_at > now else gettext("in force")
