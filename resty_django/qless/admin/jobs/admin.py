"""Job list with filters, and the page of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.bulk import FactList, Selection
from resty_django.admin.formatting import percent
from resty_django.admin.operations import Operation, Refused
from resty_django.admin.tables import Table, changed
from resty_django.conf import conf
from resty_django.text import printable
from resty_django.txid.codec import is_txid

from ...clients.client import Client
from ...clients.graph import groups_of
from ...clients.job import Job
from ...clients.put_options import JobOutcome
from ...clients.recurring import RecurringJob
from ...clients.replies import JobResult
from ...clients.serialization import encode
from ...errors import QlessError
from ...models import ArchivedJob, name_of, token
from ...models import Job as JobRow
from ...search.query import QueryError, first
from .. import formatting, outbox
from ..arguments import display_json
from ..base import TEMPLATES, JobsAdmin
from ..job_lists.filters import JobFilter
from ..job_lists.lists import JobList
from ..job_lists.rows import state_of
from ..job_lists.search import EXAMPLES, notes, suggestions
from ..job_lists.table import job_list_table
from ..links import links
from ..redis_reads import fetch_jobs, queue_names
from .actions import CLONE, undepend_operation
from .bulk import JobLists, states_text
from .callbacks import callbacks_table, outcome_facts
from .failure_report import FailureContext, failure_context
from .graph_operations import OPERATIONS_ON_GRAPHS
from .history import JobHistory, history
from .new_job import start_page
from .operations import OPERATIONS
from .stuck import STUCK, stuck_page, stuck_url


class ProgressContext(TypedDict):
    """The progress bar of a job's page. `value`: 0 to 1."""

    value: str
    text: str
    at: str


class SearchContext(TypedDict, total=False):
    """The search box. `error`: why its text cannot be understood; `tries`: searches to try instead; `examples`: these
    are pairs of text and URL, too."""

    suggestions: Sequence[str]
    examples: Sequence[tuple[str, str]]
    error: str
    tries: Sequence[tuple[str, str]]


class JobContext(TypedDict):
    """The context of `job.html` for an existing job."""

    state: str
    facts: Sequence[tuple[str, object]]
    data: str
    complete: bool
    links: Sequence[tuple[str, str]]
    failure: FailureContext | None
    result: str
    progress: ProgressContext | None
    history: JobHistory
    connected: bool
    """Whether other jobs are connected with it."""
    callbacks: Table | None
    dependencies: Sequence[tuple[str, str]]
    dependents: Sequence[tuple[str, str]]
    tags: Sequence[tuple[str, str, str]]
    applicable: Mapping[str, bool]
    """Operations by name: whether the user has permission and the job's state allows it."""
    priority: str


class JobAdmin(JobsAdmin[JobRow]):
    operations = (*OPERATIONS.values(), *OPERATIONS_ON_GRAPHS)
    missing = gettext_lazy("This job does not exist: it was canceled or has expired.")

    def extra_urls(self) -> list[URLPattern]:
        return [
            self.page_url("start", self.start_view, "start/"),
            self.page_url("stuck", self.stuck_view, "stuck/"),
            *super().extra_urls(),
            self.page_url("undepend", self.undepend_view),
            *self.operation_urls(CLONE),
        ]

    # --- pages --------------------------------------------------------------------------------------------------------

    start_view = start_page
    stuck_view = viewer_page(stuck_page)

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show jobs. URL parameters: `state`, `queue`, `klass`, `tag`, `group`, `worker`, `tracked`, `q`, `o`, `p`,
        `cursor`; a `q` that is a jid redirects to its job, also in the outbox."""
        client, text = self.client(), request.GET.get("q", "").strip()
        job = client.jobs.get(text) if text else None
        if job is not None:
            model = "recurringjob" if isinstance(job, RecurringJob) else "job"
            return HttpResponseRedirect(formatting.url(model, text))
        if in_outbox := outbox.url_of(text):
            return HttpResponseRedirect(in_outbox)
        search: SearchContext = {
            "suggestions": suggestions(client, queue_names(client)),
            "examples": _searches(EXAMPLES),
        }
        try:
            job_filter = JobFilter.from_query(request.GET)
        except QueryError as error:
            search |= {"error": str(error), "tries": _searches(error.suggestions)}
            return self.list_page(request, None, filters={"q": text}, search=search)
        if job_filter.state and job_filter.state not in (*formatting.TAB_STATES, "failed", "complete"):
            job_filter = replace(job_filter, state="")
        job_list = JobList(client, job_filter)
        table = job_list_table(request, job_list, caption=_("Jobs"), empty=_empty_text(job_filter))
        hints = [*_refusal_hints(request, job_filter), *_archive_hints(text)]
        if inside := _inside_hint(request, job_list):
            if table.rows:
                hints.append(inside)
            else:
                table = replace(table, empty=format_html('{} <a href="{}">{}</a>', table.empty, *inside))
        return self.list_page(
            request,
            table,
            title=_title_of(job_filter),
            filters={"q": printable(job_filter.search_text(text), 500)},
            search=search,
            notes=notes(job_list.lookup, () if job_filter.inside else job_filter.terms, job_filter.state),
            hints=hints,
            **self.bulk_context(request, table.pager.total if job_list.countable else None),
            shortcuts=[
                (formatting.list_url("job", tracked="1"), _("Tracked")),
                *([(f"{formatting.list_url('job')}start/", _("New job"))] if self.may(request, "start_job") else []),
            ],
        )

    @object_page
    def change_view(self, request: HttpRequest, row: JobRow) -> HttpResponse:
        """Show a job (404 if it does not exist); redirect to a recurring or archived job, or to the outbox."""
        client = self.client()
        jid = row.name
        job = client.jobs.get(jid)
        if isinstance(job, RecurringJob):
            return HttpResponseRedirect(formatting.url("recurringjob", jid))
        context = {"title": formatting.name(jid), "object": row, "on_object": True, "job": job}
        if job is None and (in_outbox := outbox.url_of(jid)):
            return HttpResponseRedirect(in_outbox)
        if job is None and (archived := ArchivedJob.objects.filter(key=token(jid)).first()):
            return HttpResponseRedirect(formatting.url("archivedjob", str(archived.pk)))
        if job is None:
            return self.page(request, f"{TEMPLATES}/job.html", context, status=404)
        return self.page(request, f"{TEMPLATES}/job.html", {**context, **self._job_context(request, client, job)})

    def _job_context(self, request: HttpRequest, client: Client, job: Job) -> JobContext:
        now = client.clock()
        state = state_of(job, now)
        data, complete = display_json(job.raw_data, job.klass)
        result = job.result()
        outcome = job.outcome() or JobOutcome()
        groups = client.run(groups_of(client, job.dependencies[:100])) if job.dependencies else {}
        permissions = self.permissions_of(request)
        return {
            "state": formatting.state(state),
            "facts": [*_job_facts(job, now, permissions), *outcome_facts(outcome)],
            "data": data,
            "complete": complete,
            "links": links(request, self.admin_site, job),
            "failure": failure_context(job, now),
            "result": _result_json(result),
            "progress": _progress_context(result, now) if state in ("running", "stalled") else None,
            "history": history(job, now),
            "connected": bool(job.dependencies or job.dependents or outcome.groups),
            "callbacks": callbacks_table(request, client, outcome) if outcome.callbacks() else None,
            "dependencies": [
                (formatting.group_link(jid) if jid in groups else formatting.job_link(jid), token(jid))
                for jid in job.dependencies
            ],
            "dependents": [(formatting.job_link(jid), token(jid)) for jid in job.dependents],
            "tags": [
                (formatting.name(tag), token(tag), formatting.list_url("job", tag=token(tag)))
                for tag in map(str, job.tags)
            ],
            "applicable": {
                name: operation.applies(job) and permissions[operation.permission]
                for name, operation in OPERATIONS.items()
            },
            "priority": f"{job.priority:g}",
        }

    # --- operations ---------------------------------------------------------------------------------------------------

    def undepend_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Remove a dependency. URL parameter: `on`, the token of the jid of the job to stop waiting for."""
        return self.operation_view(request, object_id, undepend_operation(name_of(request.GET.get("on", ""))))

    def load(self, names: Sequence[str]) -> dict[str, Job]:
        return {job.jid: job for job in fetch_jobs(self.client(), names)[0]}

    def count_text(self, count: int) -> str:
        return formatting.job_count(count)

    def named_facts(self, operation: Operation[Job], targets: Mapping[str, Job]) -> FactList:
        """Return the states of the jobs."""
        return [(_("States"), states_text([*targets.values()], self.client().clock()))]

    def list_address(self, request: HttpRequest) -> str:
        """Return the URL of the list: of the stuck jobs, of a failure group, or of all groups, which shows the rest."""
        if STUCK in request.GET:
            return stuck_url(name_of(request.GET.get("queue", "")))
        if group := name_of(request.GET.get("group", "")):
            return formatting.url("failuregroup", group)
        if "all" in request.POST and request.GET.urlencode() == "state=failed":
            return formatting.list_url("failuregroup")
        return super().list_address(request)

    def selection(self, request: HttpRequest, names: Sequence[str] | None) -> Selection:
        try:
            job_list = JobList(self.client(), JobFilter.from_query(request.GET))
        except QueryError as error:
            raise Refused(str(error)) from error
        if names is not None:
            return super().selection(request, names)
        if not job_list.countable:
            raise Refused(_("This list is too broad for a bulk action. Select jobs or add a filter."))
        return JobLists(self.client(), [job_list], is_all=True)


# --- list -------------------------------------------------------------------------------------------------------------


def _title_of(job_filter: JobFilter) -> str:
    """Return the title of a list, which names the part of the filter that the search box cannot."""
    name = job_filter.group or job_filter.worker or (_("Tracked jobs") if job_filter.tracked else _("Jobs"))
    return formatting.name(name)


def _searches(texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(text, formatting.list_url("job", q=text)) for text in texts]


def _refusal_hints(request: HttpRequest, job_filter: JobFilter) -> list[tuple[str, str]]:
    """Return a link to the refusals of the request with the transaction ID of a search, if the site has limits."""
    words = (term.value for term in job_filter.terms if not term.field)
    txid = first(job_filter.terms, "txid") or next((word for word in words if is_txid(word.lower())), "")
    may_view = any(request.user.has_perm(f"resty_limits.{verb}_limitpolicy") for verb in ("view", "change"))
    try:
        url = reverse("admin:resty_limits_limitpolicy_key") if txid and may_view else ""
    except NoReverseMatch:
        return []
    text = _("Refused requests with this transaction ID")
    return [(f"{url}{formatting.query_of({'key': txid})}", text)] if url else []


def _inside_hint(request: HttpRequest, job_list: JobList) -> tuple[str, str] | None:
    """Return a link that repeats a search for words without the index, and also finds parts of words."""
    job_filter = job_list.job_filter
    words = job_list.lookup or any(term.field in ("", "args", "error") for term in job_filter.terms)
    if job_filter.inside or not job_filter.terms or not words:
        return None
    url = changed(request, inside="1", cursor=None, examined=None, matched=None, p=None)
    return url, _("Search also for parts of words")


def _archive_hints(text: str) -> list[tuple[str, str]]:
    """Return a link to the search of the archive for a text."""
    if not text or not conf.qless.archive.enabled:
        return []
    return [(formatting.list_url("archivedjob", q=text), _("Search the archive: jid, transaction ID, class or tag"))]


def _empty_text(job_filter: JobFilter) -> str:
    """Return what to do if the list is empty."""
    if job_filter.only():
        return _('No jobs yet. Enqueue one: client.queues["mail"].put("shop.jobs.SendInvoice", {"order": 7}).')
    if job_filter.only("state") and job_filter.state == "failed":
        return _("No failed jobs.")
    if job_filter.only("tracked"):
        return _("No tracked jobs. Track a job on its page to list it here and announce each of its steps.")
    return _("No jobs match. Change your search.")


# --- page of a job ----------------------------------------------------------------------------------------------------


def _job_facts(job: Job, now: float, permissions: Mapping[str, bool]) -> list[tuple[str, object]]:
    """Return the facts about a job; its priority only for users without the form that changes it."""
    facts: list[tuple[str, object]] = [
        (_("Class"), formatting.link("jobclass", job.klass)),
        (_("Queue"), formatting.link("queue", job.queue_name)),
        *([] if permissions["edit_job"] else [(_("Priority"), formatting.number(job.priority))]),
        (_("Retries left"), f"{max(0, job.retries_left)} / {job.original_retries}"),
    ]
    if job.state == "running":
        facts.append((_("Worker"), formatting.link("worker", job.worker_name)))
        lock = _("Lock expires") if job.expires_at > now else _("Lock expired")
        facts.append((lock, formatting.relative_time(job.expires_at, now)))
    if job.txid:
        others = format_html('<a href="{}">{}</a>', formatting.list_url("job", q=job.txid), _("Other jobs with it"))
        txid = format_html('<code class="resty-id">{}</code> {}', formatting.name(job.txid), others)
        facts.append((_("Transaction"), txid))
    if job.request_id:
        facts.append((_("Request ID"), formatting.name(job.request_id)))
    if job.spawned_from_jid:
        facts.append((_("Created by"), formatting.link("recurringjob", job.spawned_from_jid)))
    return facts


def _progress_context(result: JobResult | None, now: float) -> ProgressContext | None:
    if result is None or result.progress is None:
        return None
    share = max(0.0, min(1.0, result.progress))
    return {
        "value": f"{share:.3f}",
        "text": f"{percent(share)} {printable(result.message, 200)}",
        "at": formatting.relative_time(result.at, now),
    }


def _result_json(result: JobResult | None) -> str:
    if result is None or result.result is None:
        return ""
    try:
        return display_json(encode(result.result).decode())[0]
    except QlessError:
        return ""
