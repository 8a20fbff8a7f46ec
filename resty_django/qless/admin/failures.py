"""Groups of failures: how many, since when, how lately, and what one of them says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.shown import printable

from ..job import Job
from ..models import FailureGroup, token
from . import charts, shown, verbs
from .base import TEMPLATES, JobsAdmin, named
from .forms import NameForm
from .rows import failure_of, jobs_table
from .sources import SORTED, Scope, failures, fetched
from .tables import PAGE, Column, Row, order_of, pager, sort, table

COLUMNS: Final = (
    Column("group", gettext_lazy("Failure group")),
    Column("count", gettext_lazy("Jobs"), number=True),
    Column("first", gettext_lazy("First seen"), number=True),
    Column("last", gettext_lazy("Last seen"), number=True),
    Column("spark", gettext_lazy("The latest 25"), sorts=False),
    Column("says", gettext_lazy("The last one says"), sorts=False),
)
BARS: Final = 24


class FailureGroupAdmin(JobsAdmin[FailureGroup]):
    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.look(request)
        client = self.client()
        groups: dict[str, int] = client.jobs.failed()
        wanted = self.like(request, groups)
        rows = [Row({}, {"group": group, "count": count}) for group, count in groups.items() if group in wanted]
        key, down = order_of(request, COLUMNS)
        at = pager(request, len(rows))
        if key in ("first", "last") and len(rows) <= SORTED:
            rows = sort([self._row(client, row.values) for row in rows], key, down)
            shown_rows = rows[max(0, at.first - 1) : at.last]
        else:
            rows = sort(rows, key if key in ("group", "count") else "count", down if key else True)
            shown_rows = [self._row(client, row.values) for row in rows[max(0, at.first - 1) : at.last]]
        listed = table(
            request,
            COLUMNS,
            shown_rows,
            caption=_("Failures"),
            empty=_("No group has such a name. Take the filter away.")
            if groups
            else _("No job has failed. Nothing to do here."),
            at=at,
        )
        total = sum(groups.values())
        tiles = [
            {"label": _("Failed jobs"), "value": shown.number(total), "alarm": total},
            {"label": _("Groups"), "value": shown.number(len(groups))},
        ]
        return self.listed(
            request,
            listed,
            tiles=tiles,
            form=NameForm(request.GET),
            shortcuts=[(shown.list_url("job", state="failed"), _("All failed jobs"))],
            bulk=f"{shown.list_url('job')}bulk/?state=failed",
            quick=self._quick(request, _("Retry everything"), None, _("Cancel everything")) if total else [],
        )

    def _row(self, client: Any, values: Any) -> Row:
        group, count, now = values["group"], values["count"], client.clock()
        latest, oldest = _sample(client, group, count)
        message = str(failure_of(latest[0]).get("message", "")).strip() if latest else ""
        first, last = _when(oldest), _when(latest[0]) if latest else None
        return Row(
            {
                "group": shown.link("failuregroup", group),
                "count": shown.number(count),
                "first": shown.moment(first, now),
                "last": shown.moment(last, now),
                "spark": _spark(latest, now),
                "says": shown.name(message.splitlines()[-1] if message else "", 100),
            },
            {**values, "first": first, "last": last},
        )

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.look(request)
        client, row = self.client(), self.model(key=named(object_id))
        group, now = row.name, client.clock()
        listed, source = jobs_table(
            request,
            client,
            Scope(group=group),
            caption=_("Failed jobs of the group"),
            empty=_("No job of this group is failed any more."),
        )
        count = source.total()
        latest, oldest = _sample(client, group, count)
        context = {
            "title": shown.name(group),
            "object": row,
            "on_object": True,
            "tiles": [
                {"label": _("Failed jobs"), "value": shown.number(count), "alarm": count},
                {"label": _("First seen"), "value": shown.moment(_when(oldest), now)},
                {"label": _("Last seen"), "value": shown.moment(_when(latest[0]) if latest else None, now)},
            ],
            "spark": _spark(latest, now, small=False),
            "sample": printable(str(failure_of(latest[0]).get("message", "")), 20_000) if latest else "",
            "sample_of": shown.job_link(latest[0].jid) if latest else "",
            "table": listed,
            "bulk": f"{shown.list_url('job')}bulk/" + shown.query_of({"group": token(group)}),
            "verbs": [verb for verb in verbs.VERBS.values() if self.may(request, verb.permission)],
            "whole": count,
            "quick": self._quick(request, _("Retry all"), _("Move all"), _("Cancel all")) if count else [],
        }
        return self.page(request, f"{TEMPLATES}/group.html", context)  # type: ignore[no-any-return]

    def _quick(self, request: HttpRequest, *labels: str | None) -> list[tuple[str, str, bool]]:
        """Buttons that do something to all jobs of the list."""
        wanted = zip(("retry", "move", "cancel"), labels, strict=True)
        found = [(verbs.VERBS[name], label) for name, label in wanted if label]
        return [(verb.name, label, verb.danger) for verb, label in found if self.may(request, verb.permission)]


def _sample(client: Any, group: str, count: int) -> tuple[list[Job], Job | None]:
    """The latest page of jobs of a group, and its oldest job."""
    latest = fetched(client, failures(client, group, 0, PAGE)[1])[0]
    if count <= PAGE:
        return latest, latest[-1] if latest else None
    oldest = fetched(client, failures(client, group, count - 1, 1)[1])[0]
    return latest, oldest[0] if oldest else latest[-1] if latest else None


def _when(job: Job | None) -> float | None:
    at = failure_of(job).get("when") if job is not None else None
    return float(at) if isinstance(at, int | float) else None


def _spark(jobs: Sequence[Job], now: float, *, small: bool = True) -> Any:
    """When the latest failures were, from the earliest of them until now."""
    times = [at for job in jobs if (at := _when(job)) is not None]
    if not times:
        return ""
    first = min(times)
    width = max(1.0, now - first) / BARS
    counts = [0] * BARS
    for at in times:
        counts[max(0, min(BARS - 1, int((at - first) / width)))] += 1
    words = _("The latest %(count)s failures, since %(time)s ago") % {
        "count": len(times),
        "time": shown.seconds(now - first),
    }
    marks = () if small else ((0, _("%(time)s ago") % {"time": shown.seconds(now - first)}), (BARS - 1, _("now")))
    return charts.bars(counts, words, marks=marks, small=small)


__all__ = ["FailureGroupAdmin"]
