"""The list of jobs with its filters, and the page of a job."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from resty_django.admin.shown import printable

from ..errors import QlessError
from ..job import Job
from ..models import name_of, token
from ..recurring import RecurringJob
from ..texts import encode
from . import drawing, shown, verbs
from .arguments import shown_data
from .base import TEMPLATES, named
from .forms import FilterForm, queues_of
from .job_actions import JobActions
from .links import links
from .rows import failure_of, jobs_table, state_of
from .sources import Scope, Source


class JobAdmin(JobActions):
    def more_urls(self) -> list[URLPattern]:
        return [*self.bulk_urls(), *self.action_urls()]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """In the address `state`, `queue`, `klass`, `tag`, `group`, `worker`, `tracked`, `q`, `o`, `p`, `cursor`."""
        self.look(request)
        client, scope = self.client(), Scope.of(request.GET)
        found = client.jobs.get(scope.q) if scope.q else None
        if found is not None:
            kind = "recurringjob" if isinstance(found, RecurringJob) else "job"
            return HttpResponseRedirect(shown.url(kind, scope.q))
        if scope.state and scope.state not in shown.STATES:
            scope = Scope.of({**request.GET.dict(), "state": ""})
        table, source = jobs_table(request, client, scope, caption=_("Jobs"), empty=_empty(scope))
        tagged = client.jobs.tagged(scope.q, 0, 1).total if scope.q else 0
        doors = [
            (shown.list_url("job", tag=token(scope.q)), _("%(jobs)s with this tag") % {"jobs": shown.jobs(tagged)})
        ]
        about = [
            (_("Group"), shown.link("failuregroup", scope.group)) if scope.group else None,
            (_("Worker"), shown.link("worker", scope.worker)) if scope.worker else None,
            (_("Tracked"), _by_state(source)) if scope.only("tracked") and scope.tracked else None,
        ]
        return self.listed(
            request,
            table,
            filters={"q": printable(scope.q, 200)},
            form=FilterForm(request.GET, queues_of(client)),
            facts=[each for each in about if each],
            hints=doors if tagged else [],
            verbs=self.verbs_for(request),
            whole=source.counted and table.pager.total,
            bulk=f"bulk/?{request.GET.urlencode()}",
            kept=[(key, request.GET[key]) for key in ("group", "worker", "q") if request.GET.get(key)],
            shortcuts=[
                (shown.list_url("job", state="failed"), _("Failed")),
                (shown.list_url("job", state="complete"), _("Completed")),
                (shown.list_url("job", tracked="1"), _("Tracked")),
                (shown.list_url("job", state="running"), _("Running")),
            ],
        )

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.look(request)
        client, row = self.client(), self.model(key=named(object_id))
        jid = name_of(row.key)
        found = client.jobs.get(jid)
        if isinstance(found, RecurringJob):
            return HttpResponseRedirect(shown.url("recurringjob", jid))
        context: dict[str, Any] = {"title": shown.name(jid), "object": row, "on_object": True, "job": found}
        if found is None:
            return self.page(request, f"{TEMPLATES}/job.html", context, status=404)  # type: ignore[no-any-return]
        return self.page(request, f"{TEMPLATES}/job.html", {**context, **self._about(request, client, found)})  # type: ignore[no-any-return]

    def _about(self, request: HttpRequest, client: Any, job: Job) -> dict[str, Any]:
        now = client.clock()
        state = state_of(job, now)
        failure = failure_of(job)
        data, whole = shown_data(job.raw_data, job.klass)
        told = job.result()
        may = self.allowed(request)
        fits = {name: verb.fits(job, now) and may[verb.permission] for name, verb in verbs.VERBS.items()}
        return {
            "state": shown.state(state),
            "facts": _facts(job, now),
            "data": data,
            "whole": whole,
            "links": links(request, self.admin_site, job),
            "failure": {
                "group": shown.link("failuregroup", str(failure["group"])),
                "when": shown.moment(_seconds(failure.get("when")), now),
                "worker": shown.link("worker", str(failure.get("worker") or "")),
                "message": printable(str(failure.get("message", "")), 20_000),
            }
            if failure.get("group") is not None
            else None,
            "result": _result(told) if told is not None and told.result is not None else "",
            "progress": {
                "value": f"{max(0.0, min(1.0, told.progress)):.3f}",
                "text": f"{max(0.0, min(1.0, told.progress)):.0%} {printable(told.message, 200)}",
                "at": shown.moment(told.at, now),
            }
            if told is not None and told.progress is not None and state in ("running", "stalled")
            else None,
            "events": drawing.events(job, now),
            "timeline": drawing.timeline(job, now),
            "graph": drawing.graph(client, job),
            "dependencies": [(shown.job_link(jid), token(jid)) for jid in job.dependencies],
            "dependents": [(shown.job_link(jid), token(jid)) for jid in job.dependents],
            "tags": [
                (shown.name(str(tag)), token(str(tag)), shown.list_url("job", tag=token(str(tag)))) for tag in job.tags
            ],
            "fits": fits,
            "priority": f"{job.priority:g}",
            "priorities": [("25", _("high")), ("0", _("normal")), ("-25", _("low"))],
        }


def _by_state(source: Source) -> str:
    """How many jobs of a list there are in each state; of a long list those at its beginning."""
    now = source.client.clock()
    counts = Counter(state_of(job, now) for job in source.whole(source.total()))
    return ", ".join(f"{shown.number(count)} {state}" for state, count in counts.most_common()) or _("none")


def _facts(job: Job, now: float) -> list[tuple[Any, Any]]:
    left = job.expires_at - now
    facts: list[tuple[Any, Any]] = [
        (_("Class"), shown.name(job.klass)),
        (_("Queue"), shown.link("queue", job.queue_name)),
        (_("Priority"), shown.number(job.priority)),
        (_("Retries left"), f"{max(0, job.retries_left)} / {job.original_retries}"),
    ]
    if job.state == "running":
        facts.append((_("Worker"), shown.link("worker", job.worker_name)))
        lock = _("Lock expires") if left > 0 else _("Lock expired")
        facts.append((lock, shown.moment(job.expires_at, now)))
    if job.txid:
        facts.append((_("Transaction"), shown.lines(_txid(job.txid))))
    if job.spawned_from_jid:
        facts.append((_("Made by"), shown.link("recurringjob", job.spawned_from_jid)))
    return facts


def _txid(txid: str) -> Any:
    from django.utils.html import format_html

    return format_html(
        '<code class="resty-id">{}</code> <a href="{}">{}</a>',
        shown.name(txid),
        shown.list_url("job", q=txid),
        _("Other jobs of it"),
    )


def _result(told: Any) -> str:
    try:
        return shown_data(encode(told.result).decode())[0]
    except QlessError:
        return ""


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _empty(scope: Scope) -> str:
    """What to do where there is nothing."""
    if scope.only():
        return _('There are no jobs. Put one: client.queues["mail"].put("shop.jobs.SendInvoice", {"order": 7}).')
    if scope.only("state") and scope.state == "failed":
        return _("No job has failed.")
    if scope.only("tracked"):
        return _("No job is tracked. Track one on its page, and it is listed here with each of its steps.")
    return _("No job is like this. Take a filter away, or search for something else.")


__all__ = ["JobAdmin"]
