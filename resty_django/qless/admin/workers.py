"""The workers, and the jobs of one; the tags, which lead to lists of jobs."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ..models import Tag, Worker, name_of, token
from . import shown
from .base import TEMPLATES, JobsAdmin, named
from .forms import NameForm
from .rows import jobs_table
from .sources import SORTED, Scope, plain, scored
from .tables import PAGE, Column, Row, order_of, page_of, pager, table
from .words import DEEDS

COLUMNS: Final = (
    Column("name", gettext_lazy("Worker")),
    Column("jobs", gettext_lazy("Running"), number=True),
    Column("stalled", gettext_lazy("Stalled"), number=True),
    Column("seen", gettext_lazy("Last pop")),
)
TAG_COLUMNS: Final = (
    Column("name", gettext_lazy("Tag")),
    Column("count", gettext_lazy("Jobs"), number=True),
)


class WorkerAdmin(JobsAdmin[Worker]):
    def more_urls(self) -> list[URLPattern]:
        return [self.page_url("deregister", self.deregister_view)]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.look(request)
        client = self.client()
        now = client.clock()
        found = client.workers.counts()
        names = self.like(request, (each.name for each in found))
        seen = scored(client, "ZREVRANGE", "workers", 0, -1)
        rows = [
            Row(
                {
                    "name": shown.link("worker", each.name),
                    "jobs": shown.number(each.jobs),
                    "stalled": shown.number(each.stalled),
                    "seen": shown.moment(seen.get(each.name), now),
                },
                {"name": each.name, "jobs": each.jobs, "stalled": each.stalled, "seen": seen.get(each.name, 0)},
            )
            for each in found
            if each.name in names
        ]
        empty = (
            _("No worker has such a name. Take the filter away.")
            if found
            else _("No worker is known. Start one, and it is listed with its first look for a job.")
        )
        listed = table(request, COLUMNS, rows, caption=_("Workers"), empty=empty)
        return self.listed(request, listed, form=NameForm(request.GET))

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.look(request)
        client, row = self.client(), self.model(key=named(object_id))
        held = client.workers[row.name]
        listed, _source = jobs_table(
            request,
            client,
            Scope(worker=row.name),
            caption=_("Jobs of the worker"),
            empty=_("The worker runs no job now, or is not known any more."),
            picks=False,
        )
        context = {
            "title": shown.name(row.name),
            "object": row,
            "on_object": True,
            "table": listed,
            "tiles": [
                {"label": _("Running"), "value": shown.number(len(held.jobs))},
                {"label": _("Stalled"), "value": shown.number(len(held.stalled)), "alarm": held.stalled},
            ],
            "actions": [
                *(
                    [(shown.url("worker", row.name, "deregister"), _("Deregister"), True)]
                    if self.may(request, "configure_jobs")
                    else []
                ),
                (shown.url("worker", row.name, "history"), _("History"), False),
            ],
        }
        return self.page(request, f"{TEMPLATES}/list.html", context)  # type: ignore[no-any-return]

    def deregister_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Worker, given: dict[str, Any]) -> tuple[str, str]:
            self.client().workers.deregister(row.name)
            row.gone = True  # type: ignore[attr-defined]
            return _("The worker is not listed any more."), "Deregistered."

        return self.change(
            request,
            object_id,
            permission="configure_jobs",
            title=_("Deregister"),
            button=_("Deregister the worker"),
            perform=perform,
            explain=DEEDS["deregister"][1],
            danger=True,
        )


class TagAdmin(JobsAdmin[Tag]):
    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.look(request)
        client = self.client()
        total = plain(client, "ZCOUNT", "tags", 2, "+inf")
        whole = bool(order_of(request, TAG_COLUMNS)[0]) and total <= SORTED
        start, wanted = (0, SORTED) if whole else ((page_of(request) - 1) * PAGE, PAGE)
        tags = [str(each) for each in client.tags(start, wanted)]
        rows = [
            Row({"name": shown.tags([tag]), "count": shown.number(count)}, {"name": tag, "count": count})
            for tag, count in ((tag, client.jobs.tagged(tag, 0, 1).total) for tag in tags)
        ]
        listed = table(
            request,
            TAG_COLUMNS,
            rows,
            caption=_("Tags"),
            empty=_("No tag is used twice. Tags are given with a job, or on its page; the search finds rarer ones."),
            at=None if whole else pager(request, total),
            sortable=total <= SORTED,
        )
        return self.listed(request, listed)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The jobs that have it."""
        self.look(request)
        return HttpResponseRedirect(shown.list_url("job", tag=token(name_of(named(object_id)))))


__all__ = ["TagAdmin", "WorkerAdmin"]
