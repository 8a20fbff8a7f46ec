"""Admin page of the alerts: current incidents, the last ones, and messages that could not be sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from resty_django.alerts import store
from resty_django.alerts.delivery import amount, condition
from resty_django.alerts.incidents import Incident, State
from resty_django.alerts.rules import BadRule, parse_rules
from resty_django.conf import conf
from resty_django.models import Alert
from resty_django.shdict import SharedDictError
from resty_django.text import printable

from .base import ReadOnlyAdmin
from .chart_axes import local
from .export import Sheet, moment
from .formatting import duration
from .tables import Column, Listing, filter_form, listing

REFRESH_SECONDS: Final = 10
MAX_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class Row:
    """An incident as the page shows it; times are datetimes."""

    title: str
    rule: str
    subject: str
    value: str
    condition: str
    since: Any
    fired: Any
    resolved: Any
    lasted: str
    incident: Incident

    @classmethod
    def of(cls, incident: Incident) -> Row:
        return cls(
            printable(incident.title, MAX_LENGTH),
            printable(incident.rule, MAX_LENGTH),
            printable(incident.subject, MAX_LENGTH),
            amount(incident.value, incident.unit),
            condition(incident),
            local(incident.since),
            None if incident.fired is None else local(incident.fired),
            None if incident.resolved is None else local(incident.resolved),
            "" if incident.resolved is None else duration(incident.resolved - incident.since),
            incident,
        )


COLUMNS: Final = (
    Column("title", _("Alert")),
    Column("subject", _("Subject")),
    Column("value", _("Value"), number=True, of="incident.value"),
    Column("rule", _("Rule")),
    Column("since", _("Since"), time=True),
)
OPEN_COLUMNS: Final = (*COLUMNS, Column("reported", _("Reported"), time=True, of="fired"))
PAST_COLUMNS: Final = (
    *COLUMNS,
    Column("until", _("Until"), time=True, of="resolved"),
    Column("duration", _("Duration"), number=True, of=lambda row: (row.resolved - row.since).total_seconds()),
)


def _listing(request: HttpRequest, name: str, incidents: Iterable[Incident]) -> Listing[Row]:
    """Return a table of incidents, sorted by the URL parameter `o-<name>`."""
    columns = PAST_COLUMNS if name == "past" else OPEN_COLUMNS
    return listing(request, columns, map(Row.of, incidents), name=name)


class AlertAdmin(ReadOnlyAdmin[Alert]):
    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator([require_safe, never_cache])
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        error, state, rule_count = "", State(), 0
        try:
            rule_count = len(parse_rules(conf.alerts.rules))
            state = store.load()
        except (BadRule, SharedDictError) as failure:
            error = printable(str(failure), MAX_LENGTH)
        active = sorted(state.active, key=lambda incident: -incident.since)
        failed = [message for message in state.messages if message.error]
        context = {
            "title": capfirst(str(self.opts.verbose_name_plural)),
            "error": error,
            "rule_count": rule_count,
            "evaluated": local(state.evaluated) if state.evaluated else None,
            "active": _listing(request, "active", (incident for incident in active if incident.fired is not None)),
            "pending": _listing(request, "pending", (incident for incident in active if incident.fired is None)),
            "past": _listing(request, "past", state.past),
            "filter": filter_form(request),
            "unsent": len(failed),
            "unsent_error": printable(failed[-1].error, MAX_LENGTH) if failed else "",
            "every": REFRESH_SECONDS,
            "exports": [
                _sheet("alerts", [incident for incident in active if incident.fired is not None]),
                _sheet("alerts-pending", [incident for incident in active if incident.fired is None]),
                _sheet("alerts-past", state.past),
            ],
        }
        return self.page(request, "admin/resty_django/alert/page.html", context)


def _sheet(name: str, incidents: Sequence[Incident]) -> Sheet:
    """Return the export of incidents; `value` is in `unit`."""
    columns = ("alert", "subject", "value", "unit", "rule", "threshold", "since", "reported", "until")
    return Sheet(
        name,
        columns,
        lambda: (
            (
                *(incident.title, incident.subject, incident.value, incident.unit, incident.rule, incident.threshold),
                *map(moment, (incident.since, incident.fired, incident.resolved)),
            )
            for incident in incidents
        ),
    )
