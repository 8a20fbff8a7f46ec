"""The overview of all queues, and the page of a queue: figures, its jobs by state, pausing and forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.shown import printable

from .. import pauses
from ..models import Queue, token
from ..values import QueueCounts
from . import charts, overview, shown, verbs
from .base import TEMPLATES, JobsAdmin, named
from .forms import NameForm, PauseForm
from .recurring import recurring_table
from .rows import jobs_table
from .sources import Scope, plain, queue_counts
from .tables import Column, Row, table
from .words import DEEDS

COLUMNS: Final = (
    Column("name", gettext_lazy("Queue")),
    *(Column(state, gettext_lazy(state.capitalize()), number=True) for state in shown.QUEUE_STATES),
    Column("recurring", gettext_lazy("Recurring"), number=True),
    Column("hour", gettext_lazy("Done in an hour"), number=True),
    Column("pause", gettext_lazy("Handed out"), sorts=False),
)
TABS: Final = ("stats", *shown.QUEUE_STATES, "recurring")
LISTED: Final = 100
"""Queues whose last hour is drawn."""


class QueueAdmin(JobsAdmin[Queue]):
    def more_urls(self) -> list[URLPattern]:
        return [
            self.page_url("pause", self.pause_view),
            self.page_url("unpause", self.unpause_view),
            self.page_url("forget", self.forget_view),
        ]

    # --- looking ----------------------------------------------------------------------------------------------------

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.look(request)
        client = self.client()
        counts = queue_counts(client)
        groups = client.jobs.failed()
        workers = client.workers.counts()
        names = self.like(request, (each.name for each in counts))
        wanted = [each for each in counts if each.name in names]
        reasons = overview.reasons(client, [each.name for each in wanted if each.paused])
        hours = overview.hours(client, [each.name for each in wanted[:LISTED]])
        rows = [self._row(request, each, hours.get(each.name, ()), reasons.get(each.name, "")) for each in wanted]
        listed = table(
            request,
            COLUMNS,
            rows,
            caption=_("Queues"),
            empty=_('There is no queue yet. It is there once a job is put: client.queues["mail"].put(...).')
            if not counts
            else _("No queue has such a name. Take the filter away."),
        )
        return self.listed(
            request,
            listed,
            form=NameForm(request.GET),
            tiles=overview.tiles(client, counts, groups, workers),
            shortcuts=[(shown.list_url("about"), _("About this job queue"))],
            more=[overview.worst(request, groups)],
        )

    def _row(self, request: HttpRequest, counts: QueueCounts, hour: Sequence[int], reason: str) -> Row:
        called = counts.name
        cells: dict[str, Any] = {
            state: shown.counted(getattr(counts, state), shown.url("queue", called, tab=state))
            for state in (*shown.QUEUE_STATES, "recurring")
        }
        cells["name"] = shown.link("queue", called)
        cells["hour"] = format_html(
            "{} {}", shown.number(sum(hour)), charts.bars(hour, _("Completed by minute"), small=True) if hour else ""
        )
        cells["pause"] = overview.handed_out(counts, reason, self.may(request, "pause_queue"))
        values = {state: getattr(counts, state) for state in (*shown.QUEUE_STATES, "recurring")}
        return Row(cells, {**values, "name": called, "hour": sum(hour)})

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """In the address `tab`, and `period` of the statistics."""
        self.look(request)
        client, row = self.client(), self.model(key=named(object_id))
        queue = client.queues[row.name]
        counts = queue.counts()
        tab = request.GET.get("tab", "stats")
        tab = tab if tab in TABS else "stats"
        here = shown.url("queue", row.name)
        context: dict[str, Any] = {
            "title": shown.name(row.name),
            "object": row,
            "on_object": True,
            "tab": tab,
            "tabs": [
                (f"{here}?tab={each}", _(each.capitalize()), shown.number(getattr(counts, each, None)), each == tab)
                for each in TABS
            ],
            "paused": counts.paused,
            "reason": shown.name(overview.reasons(client, [row.name]).get(row.name, "")) if counts.paused else "",
            "known": _known(client, row.name) or any(getattr(counts, each) for each in shown.QUEUE_STATES),
        }
        if tab == "stats":
            context |= self._stats(request, client, row.name)
        elif tab == "recurring":
            context["table"] = recurring_table(request, client, [row.name])
        else:
            scope = Scope(queue=row.name, state=tab)
            context["table"], source = jobs_table(
                request, client, scope, caption=_(tab.capitalize()), empty=_empty(tab, row.name)
            )
            context["verbs"] = [verb for verb in verbs.VERBS.values() if self.may(request, verb.permission)]
            context["whole"] = source.counted and context["table"].pager.total
            context["bulk"] = f"{shown.list_url('job')}bulk/" + shown.query_of({"queue": token(row.name), "state": tab})
        return self.page(request, f"{TEMPLATES}/queue.html", context)  # type: ignore[no-any-return]

    def _stats(self, request: HttpRequest, client: Any, called: str) -> dict[str, Any]:
        period = request.GET.get("period", "hour")
        period = period if period in charts.PERIODS else "hour"
        now = client.clock()
        queue = client.queues[called]
        days = [queue.stats(day) for day in charts.days_of(period, now)]
        today = charts.summed(days[:1])
        config = client.config.all()
        return {
            "periods": [(f"?tab=stats&period={key}", _(label), key == period) for key, label in charts.PERIODS.items()],
            "tiles": [
                {"label": _("Failures today"), "value": shown.number(today["failures"]), "alarm": today["failures"]},
                {"label": _("Of these still failed"), "value": shown.number(today["failed"])},
                {"label": _("Retries today"), "value": shown.number(today["retries"])},
                {"label": _("Lock"), "value": _limit(config, called, "heartbeat", 60, " s")},
                {"label": _("At once"), "value": _limit(config, called, "max-concurrency", 0, "")},
            ],
            "charts": [
                charts.throughput_chart(queue.throughput(), period, now),
                charts.durations_chart(_("Waited"), [day.wait for day in days]),
                charts.durations_chart(_("Ran"), [day.run for day in days]),
            ],
            "by_day": period in ("hour", "day"),
        }

    # --- doing ------------------------------------------------------------------------------------------------------

    def pause_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Queue, given: dict[str, Any]) -> tuple[str, str]:
            queue, reason = self.client().queues[row.name], given["reason"]
            pauses.pause(queue, reason, given["stop_jobs"])
            said = format_html(
                '{} <a href="{}">{}</a>', _("The queue is paused."), shown.url("queue", row.name, "unpause"), _("Undo")
            )
            stopped = ", its running jobs stopped" if given["stop_jobs"] else ""
            return said, f"Paused{stopped}." + (f" {printable(reason, 200)}" if reason else "")

        return self.change(
            request,
            object_id,
            permission="pause_queue",
            title=_("Pause"),
            button=_("Pause the queue"),
            form=lambda data, row: PauseForm(data),
            perform=perform,
            explain=DEEDS["pause"][1],
        )

    def unpause_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Queue, given: dict[str, Any]) -> tuple[str, str]:
            pauses.unpause(self.client().queues[row.name])
            return _("The queue goes on."), "Unpaused."

        return self.change(
            request,
            object_id,
            permission="pause_queue",
            title=_("Unpause"),
            button=_("Hand out jobs again"),
            perform=perform,
            explain=DEEDS["unpause"][1],
        )

    def forget_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Queue, given: dict[str, Any]) -> tuple[str, str]:
            self.client().queues[row.name].forget()
            row.gone = True  # type: ignore[attr-defined]
            return _("The queue is not listed any more."), "Forgot the queue."

        return self.change(
            request,
            object_id,
            permission="configure_jobs",
            title=_("Forget"),
            button=_("Forget the queue"),
            perform=perform,
            explain=DEEDS["forget"][1],
            danger=True,
        )


def _known(client: Any, called: str) -> bool:
    return plain(client, "ZSCORE", "queues", called) is not None


def _limit(config: dict[str, Any], queue: str, option: str, default: int, unit: str) -> str:
    value = config.get(f"{queue}-{option}", config.get(option, default))
    return _("no bound") if option == "max-concurrency" and not value else f"{value}{unit}"


def _empty(tab: str, called: str) -> str:
    return {
        "waiting": _('No job waits. Put one: client.queues["%(queue)s"].put(...).') % {"queue": shown.name(called)},
        "running": _("No job runs. If jobs wait, start a worker for this queue."),
        "stalled": _("No job has lost its worker."),
        "scheduled": _("No job is scheduled. One that is put with a delay is."),
        "depends": _("No job waits for another one."),
    }[tab]


__all__ = ["QueueAdmin"]
