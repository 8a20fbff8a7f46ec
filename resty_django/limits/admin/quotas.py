"""The admin of quotas: the rows, found by key or by quota, and the actions that reset and grant units."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import Error as DatabaseError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy
from django.views.decorators.http import require_http_methods

from resty_django.admin.base import ReadOnlyAdmin, object_page
from resty_django.admin.formatting import date_time, local_time, number
from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.text import printable
from resty_django.text.localized import grouped

from ..models import QuotaUsage
from ..quotas import changes, registry, rows
from ..quotas.periods import Period
from ..quotas.rows import MAX_GRANTED_UNITS
from ..quotas.store import row_key
from .columns import MAX_SHOWN_CHARACTERS
from .key_forms import stored_forms

TEMPLATES: Final = "admin/resty_limits/quotausage"
BY_QUOTA: Final = ("quota", "key", "starts_at")
"""The order of the unique index, for the rows of one quota."""


class ReasonForm(forms.Form):
    """The reason of an action on a row, for its log entry. Raise `Refused` if the row's period has ended."""

    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200)

    def __init__(self, data: Any, row: QuotaUsage | None) -> None:
        if row is not None:
            _current(row)
        super().__init__(data, field_order=["quota", "key", "units", "reason"])


class GrantForm(ReasonForm):
    """Units to grant in a period."""

    units = forms.IntegerField(
        label=gettext_lazy("Units"),
        min_value=-MAX_GRANTED_UNITS,
        max_value=MAX_GRANTED_UNITS,
        help_text=gettext_lazy("Added to the limit until the period ends. A negative number subtracts units."),
    )

    def clean_units(self) -> int:
        units = self.cleaned_data["units"]
        if not units:
            raise ValidationError(_("Enter a number other than 0."))
        return int(units)


class FirstGrantForm(GrantForm):
    """Units to grant to a key that may have no row yet."""

    quota = forms.ChoiceField(label=gettext_lazy("Quota"))
    key = forms.CharField(
        label=gettext_lazy("Key"),
        strip=False,
        help_text=gettext_lazy("As the list shows it, for example 7 for the user with the ID 7. Case-sensitive."),
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data, None)
        names = [quota.name for quota in registry.all_quotas()]
        cast("forms.ChoiceField", self.fields["quota"]).choices = [(name, name) for name in names]


class QuotaFilter(admin.SimpleListFilter):
    """Rows of one quota."""

    title = gettext_lazy("quota")
    parameter_name = "quota"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = {quota.name for quota in registry.all_quotas()}
        chosen = request.GET.get(self.parameter_name)
        return [
            (name, printable(name, MAX_SHOWN_CHARACTERS)) for name in sorted(names | ({chosen} if chosen else set()))
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[QuotaUsage]) -> QuerySet[QuotaUsage]:
        name = self.value()
        if not name:
            return queryset
        return queryset.filter(quota=name) if name.isprintable() else queryset.none()


def _current(row: QuotaUsage) -> QuotaUsage:
    """Return a row whose period has not ended. Raise `Refused` for others."""
    if _ended(row):
        raise Refused(_("The period of this row has ended, so its units are no longer used."))
    return row


def _ended(row: QuotaUsage) -> bool:
    return row.ends_at <= time.time()


def _period(row: QuotaUsage) -> Period:
    return Period(row.starts_at, row.ends_at)


def _explanation(row: QuotaUsage) -> dict[str, Any]:
    return {
        "row": row,
        "key": printable(row.key, MAX_SHOWN_CHARACTERS),
        "used": row.used,
        "total": row.limit + row.granted,
        "resets_at": local_time(row.ends_at),
    }


def _grant(row: QuotaUsage, entered: dict[str, Any]) -> OperationResult:
    units = entered["units"]
    try:
        granted = changes.grant(row.quota, row.key, _period(_current(row)), units, row.limit)
    except ValueError as error:
        raise Refused(str(error)) from error
    row.pk = row.pk or rows.rows_of(row.quota, row.key, _period(row)).get().pk
    entry = (
        f"Granted {units:+,} units, from {number(granted.before)} to {number(granted.after)}, until "
        f"{date_time(row.ends_at)}. Reason: {entered['reason']}"
    )
    text = _("Granted {units} units: {total} in total in this period.")
    return OperationResult(entry, format_html(text, units=grouped(units, sign=True), total=number(granted.after)))


def _reset(row: QuotaUsage, entered: dict[str, Any]) -> OperationResult:
    used = changes.reset(row.quota, row.key, _period(_current(row)))
    if used is None:
        raise Refused(_("The row was deleted."))
    text = _("Reset the used units of {row} from {used} to 0.")
    return OperationResult(
        f"Reset the used units from {number(used)} to 0. Reason: {entered['reason']}",
        format_html(text, row=str(row), used=number(used)),
    )


class QuotaUsageAdmin(ReadOnlyAdmin[QuotaUsage]):
    list_display = ("shown_key", "quota", "shown_used", "shown_limit", "shown_granted", "starts", "resets_at")
    list_filter = (QuotaFilter,)
    search_fields = ("key",)
    search_help_text = gettext_lazy(
        "A whole key, for example 7, 192.0.2.1 or user:7, or the name of a quota. Case-sensitive."
    )
    ordering = ("-pk",)
    sortable_by = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = None
    object_route = "<path:object_id>"
    operations = (
        Operation(
            "grant",
            gettext_lazy("Grant units"),
            "grant_quotausage",
            _grant,
            form=GrantForm,
            explain=_explanation,
            button=gettext_lazy("Grant"),
            template=f"{TEMPLATES}/grant.html",
        ),
        Operation(
            "reset",
            gettext_lazy("Reset the usage"),
            "reset_quotausage",
            _reset,
            form=ReasonForm,
            explain=_explanation,
            button=gettext_lazy("Reset"),
            template=f"{TEMPLATES}/reset.html",
        ),
    )

    class Media:
        css: ClassVar = {"all": ["resty_limits/admin.css"]}

    def extra_urls(self) -> list[URLPattern]:
        return [self.page_url("grant_key", self.grant_key_view, "grant/"), *self.operation_urls()]

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return BY_QUOTA if request.GET.get(QuotaFilter.parameter_name) else self.ordering

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[QuotaUsage], search_term: str
    ) -> tuple[QuerySet[QuotaUsage], bool]:
        """Return the rows of a key, in each form in which quotas store it; if there are none, of a quota.

        Each is one comparison with an indexed column.
        """
        text = search_term.strip()
        if not text:
            return queryset, False
        of_key = queryset.filter(key__in=sorted(map(row_key, stored_forms(text))))
        return (of_key if of_key.exists() else queryset.filter(quota=text).order_by(*BY_QUOTA)), False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return super().changelist_view(request, {"may_grant": self.may(request, "grant_quotausage")})

    def export_columns(self, request: HttpRequest) -> dict[str, Callable[[QuotaUsage], Any]]:
        return {
            "key": lambda row: row.key,
            "quota": lambda row: row.quota,
            "used": lambda row: row.used,
            "limit": lambda row: row.limit + row.granted,
            "granted": lambda row: row.granted,
            "start": lambda row: local_time(row.starts_at),
            "resets": lambda row: local_time(row.ends_at),
        }

    # --- columns ---

    @admin.display(description=gettext_lazy("key"))
    def shown_key(self, row: QuotaUsage) -> Any:
        return format_html('<code class="resty-id">{}</code>', printable(row.key, MAX_SHOWN_CHARACTERS))

    @admin.display(description=gettext_lazy("used"), ordering="used")
    def shown_used(self, row: QuotaUsage) -> str:
        return number(row.used)

    @admin.display(description=pgettext_lazy("number", "limit"))
    def shown_limit(self, row: QuotaUsage) -> str:
        return number(row.limit + row.granted)

    @admin.display(description=gettext_lazy("granted"))
    def shown_granted(self, row: QuotaUsage) -> str:
        return grouped(row.granted, sign=True) if row.granted else ""

    @admin.display(description=gettext_lazy("start"))
    def starts(self, row: QuotaUsage) -> str:
        return date_time(row.starts_at)

    @admin.display(description=gettext_lazy("resets"))
    def resets_at(self, row: QuotaUsage) -> str:
        return date_time(row.ends_at)

    # --- pages ---

    @object_page
    def change_view(self, request: HttpRequest, row: QuotaUsage) -> HttpResponse:
        """Show a row."""
        counted = registry.find_quota(row.quota)
        context = {
            "title": str(row),
            "object": row,
            "row": row,
            "key": printable(row.key, MAX_SHOWN_CHARACTERS),
            "total": row.limit + row.granted,
            "reserved": changes.reserved(row.quota, row.key, _period(row), row.resets),
            "starts": local_time(row.starts_at),
            "resets_at": local_time(row.ends_at),
            "ended": _ended(row),
            "description": counted.describe() if counted else "",
            "may_grant": self.may(request, "grant_quotausage", row),
            "may_reset": self.may(request, "reset_quotausage", row),
        }
        return self.page(request, f"{TEMPLATES}/row.html", context)

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def grant_key_view(self, request: HttpRequest) -> HttpResponse:
        """Grant units to a key in its current period, which may have no row yet."""
        if not self.may(request, "grant_quotausage"):
            raise PermissionDenied
        form = FirstGrantForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            entered = form.cleaned_data
            try:
                row = _row_of(entered["quota"], entered["key"])
                change = _grant(row, entered)
            except (Refused, DatabaseError) as error:
                self.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
            else:
                self.add_changes(request, [(row, change)])
                self.message_user(request, change.message, messages.SUCCESS)
                return HttpResponseRedirect(reverse(self.url_name("change"), args=[row.pk]))
        back = reverse(self.url_name("changelist"))
        context = {"title": _("Grant units"), "object": None, "form": form, "button": _("Grant"), "back": back}
        return self.page(request, "admin/resty_django/action.html", context)


def _row_of(name: str, key: str) -> QuotaUsage:
    """Return the row of a key in the current period of a quota, not saved if there is none."""
    counted = registry.find_quota(name)
    if counted is None:
        raise Refused(_("This process has not loaded the quota “%(name)s”.") % {"name": name})
    period = counted.period(key)
    numbers = {"starts_at": period.start, "ends_at": period.end, "limit": counted.limit or 0}
    return rows.rows_of(name, row_key(key), period).first() or QuotaUsage(quota=name, key=row_key(key), **numbers)
