"""Workers with their jobs, and tags."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ..clients.replies import WorkerLife
from ..clients.serialization import as_list
from ..models import Tag, Worker, name_of, token
from . import formatting
from .base import JobsAdmin
from .forms import NameForm
from .glossary import OPERATION_HELP
from .job_export import with_export
from .job_lists import MAX_SORTED, JobFilter, redis_command, sorted_set
from .rows import jobs_table
from .tables import PAGE_SIZE, Column, Row, order_of, page_of, pager, sheet_of, table

COLUMNS: Final = (
    Column("name", gettext_lazy("Worker")),
    Column("state", gettext_lazy("State")),
    Column("queues", gettext_lazy("Queues"), sorts=False),
    Column("jobs", gettext_lazy("Running"), number=True),
    Column("stalled", gettext_lazy("Stalled"), number=True),
    Column("seen", gettext_lazy("Last seen"), time=True),
)
MOST_QUEUES: Final = 5
"""Maximum number of queues listed for a worker."""
STATES: Final = {
    "alive": gettext_lazy("The worker reports every 10 seconds."),
    "silent": gettext_lazy("No report for 30 seconds: the worker is blocked, stopped, or cut off from the server."),
    "gone": gettext_lazy("No report for two minutes. After ten minutes the worker is removed from the list."),
}
TAG_COLUMNS: Final = (
    Column("name", gettext_lazy("Tag")),
    Column("count", gettext_lazy("Jobs"), number=True),
)


class WorkerAdmin(JobsAdmin[Worker]):
    def extra_urls(self) -> list[URLPattern]:
        return [self.page_url("deregister", self.deregister_view)]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.check_view_permission(request)
        client = self.client()
        now = client.clock()
        workers = client.workers.counts()
        names = self.filter_names(request, (worker.name for worker in workers))
        last_seen = sorted_set(client, "ZREVRANGE", "workers", 0, -1)
        lives = {worker.name: worker for worker in client.workers.alive()}
        rows = [
            Row(
                {
                    "name": formatting.link("worker", worker.name),
                    "state": _state(lives.get(worker.name)),
                    "queues": _queues(lives.get(worker.name)),
                    "jobs": formatting.number(worker.jobs),
                    "stalled": formatting.number(worker.stalled),
                    "seen": formatting.relative_time(last_seen.get(worker.name), now),
                },
                {
                    "name": worker.name,
                    "state": lives[worker.name].state if worker.name in lives else "",
                    "jobs": worker.jobs,
                    "stalled": worker.stalled,
                    "seen": last_seen.get(worker.name, 0),
                },
            )
            for worker in workers
            if worker.name in names
        ]
        empty = (
            _("No matching workers. Remove the filter.")
            if workers
            else _("No workers. A worker appears here once it polls for a job.")
        )
        workers_table = table(request, COLUMNS, rows, caption=_("Workers"), empty=empty, export="workers")
        return self.list_page(request, workers_table, form=NameForm(request.GET))

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.check_view_permission(request)
        client, row = self.client(), self.model(key=unquote(object_id))
        worker = client.workers[row.name]
        jobs_of_worker, job_list = jobs_table(
            request,
            client,
            JobFilter(worker=row.name),
            caption=_("Jobs of the worker"),
            empty=_("The worker has no running jobs, or is no longer known."),
            picks=False,
        )
        actions = [(formatting.url("worker", row.name, "history"), _("History"), False)]
        if self.may(request, "configure_jobs"):
            actions.insert(0, (formatting.url("worker", row.name, "deregister"), _("Deregister"), True))
        return self.list_page(
            request,
            with_export(jobs_of_worker, job_list),
            title=formatting.name(row.name),
            object=row,
            on_object=True,
            tiles=[
                {"label": _("Running"), "value": formatting.number(len(worker.jobs))},
                {"label": _("Stalled"), "value": formatting.number(len(worker.stalled)), "alarm": worker.stalled},
            ],
            actions=actions,
        )

    def deregister_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Worker, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            self.client().workers.deregister(row.name)
            row.gone = True  # type: ignore[attr-defined]
            return _("The worker was removed from the list."), "Deregistered."

        return self.operation_view(
            request,
            object_id,
            permission="configure_jobs",
            title=_("Deregister"),
            button=_("Deregister the worker"),
            perform=perform,
            explain=OPERATION_HELP["deregister"][1],
            danger=True,
        )


def _state(life: WorkerLife | None) -> Any:
    """Return a worker's state; empty for workers of other clients, which do not report in."""
    return "" if life is None else format_html('<span title="{}">{}</span>', STATES[life.state], life.state)


def _queues(life: WorkerLife | None) -> Any:
    names = [] if life is None else [str(name) for name in as_list(life.queues)]
    return format_html_join(", ", "{}", ((formatting.link("queue", name),) for name in names[:MOST_QUEUES]))


def _tag_rows(client: Any, start: int, count_wanted: int) -> list[Row]:
    """Return a part of the list of tags, the most used first."""
    tags = [str(tag) for tag in client.tags(start, count_wanted)]
    return [
        Row({"name": formatting.tag_links([tag]), "count": formatting.number(total)}, {"name": tag, "count": total})
        for tag, total in ((tag, client.jobs.tagged(tag, 0, 1).total) for tag in tags)
    ]


def _all_tags(client: Any) -> Iterator[Row]:
    for start in count(0, PAGE_SIZE):
        rows = _tag_rows(client, start, PAGE_SIZE)
        yield from rows
        if len(rows) < PAGE_SIZE:
            return


class TagAdmin(JobsAdmin[Tag]):
    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.check_view_permission(request)
        client = self.client()
        total = redis_command(client, "ZCOUNT", "tags", 2, "+inf")
        sorts_all = bool(order_of(request, TAG_COLUMNS)[0]) and total <= MAX_SORTED
        start, count_wanted = (0, MAX_SORTED) if sorts_all else ((page_of(request) - 1) * PAGE_SIZE, PAGE_SIZE)
        rows = _tag_rows(client, start, count_wanted)
        tags_table = table(
            request,
            TAG_COLUMNS,
            rows,
            caption=_("Tags"),
            empty=_("No tag is used by two jobs. Add tags when you enqueue a job or on its page."),
            position=None if sorts_all else pager(request, total),
            sortable=total <= MAX_SORTED,
            export=sheet_of("tags", TAG_COLUMNS, lambda: _all_tags(client)),
        )
        return self.list_page(request, tags_table)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Redirect to the jobs with this tag."""
        self.check_view_permission(request)
        return HttpResponseRedirect(formatting.list_url("job", tag=token(name_of(unquote(object_id)))))
