"""Operations on jobs: each has its own page, which also accepts the small forms of the job's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.bulk import FactList, Selection
from resty_django.admin.operations import Operation, OperationResult, Refused

from ...clients.job import Job
from ...clients.serialization import decode
from ...models import Job as JobRow
from ...models import name_of, token
from ...search.query import QueryError
from ...tasks import calls
from .. import formatting
from ..arguments import arguments_help, checked_arguments, editable_json
from ..base import JobsAdmin
from ..forms import JobForm, queues_of
from ..job_lists.filters import JobFilter
from ..job_lists.lists import JobList
from ..job_lists.rows import history_of
from ..redis_reads import fetch_jobs
from .bulk import JobLists, states_text
from .graph_operations import OPERATIONS_ON_GRAPHS
from .operations import OPERATIONS


def _undepend(job: Job, dependency: str) -> OperationResult:
    if not dependency and not job.dependencies:
        job.undepend(all=True)
        return OperationResult(_("The job is ready to run."))
    if dependency not in job.dependencies:
        raise Refused(_("The job no longer waits for that job."))
    job.undepend(dependency)
    return OperationResult(_("The job no longer waits for %(jid)s.") % {"jid": formatting.name(dependency)})


def _clone_form(data: Any, job: Job) -> JobForm:
    values = clone_values(job)
    queues = dict.fromkeys([*queues_of(job.client), *filter(None, [name_of(values["queue"])])])
    return JobForm(data, [*queues], values, arguments_help(job.klass))


def _clone(job: Job, data: dict[str, Any]) -> OperationResult:
    options = {key: data[key] for key in ("priority", "retries", "delay", "tags")}
    options["tags"] += [tag for tag in map(str, job.tags) if not _is_editable(tag)]
    arguments = checked_arguments(data["arguments"], decode(job.raw_data), job.klass, job.client.clock())
    jid = calls.put(job.client, job.klass, arguments, data["queue"], **options)
    others = [(JobRow.from_name(jid), f"Created from {job.jid}.")]
    return OperationResult(f"Run again as {jid}.", formatting.enqueued(jid), others=others)


class JobActions(JobsAdmin[JobRow]):
    operations = (*OPERATIONS.values(), *OPERATIONS_ON_GRAPHS)
    missing = gettext_lazy("This job does not exist: it was canceled or has expired.")

    def extra_urls(self) -> list[URLPattern]:
        clone = Operation(
            "clone",
            gettext_lazy("New job like this one"),
            "start_job",
            _clone,
            gettext_lazy(
                "Creates a new job of the same class with these values and its own jid. It waits for no other job. "
                "The first job does not change."
            ),
            form=_clone_form,
            button=gettext_lazy("Enqueue the job"),
        )
        return [*super().extra_urls(), self.page_url("undepend", self.undepend_view), *self.operation_urls(clone)]

    # --- many jobs ----------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, Job]:
        return {job.jid: job for job in fetch_jobs(self.client(), names)[0]}

    def count_text(self, count: int) -> str:
        return formatting.job_count(count)

    def named_facts(self, operation: Operation[Job], targets: Mapping[str, Job]) -> FactList:
        """Return the states of the jobs."""
        return [(_("States"), states_text([*targets.values()], self.client().clock()))]

    def list_address(self, request: HttpRequest) -> str:
        """Return the URL of the list; for failed jobs, of their group or of the list of groups, which show the rest."""
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

    # --- one job only -------------------------------------------------------------------------------------------------

    def undepend_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Remove a dependency. URL parameter `on`: the jid of the job to stop waiting for; empty for a job that waits
        for no job."""
        dependency = name_of(request.GET.get("on", ""))
        effect = _("The job waits for no job. It will be ready to run. This cannot be undone.")
        if dependency:
            effect = _(
                "The job will no longer wait for %(jid)s. When it has no dependencies left, it is ready to run. "
                "This cannot be undone."
            ) % {"jid": formatting.name(dependency)}
        operation: Operation[Job] = Operation(
            "undepend",
            _("Remove a dependency"),
            "edit_job",
            lambda job, data: _undepend(job, dependency),
            effect,
            button=_("Remove the dependency"),
            danger=True,
        )
        return self.operation_view(request, object_id, operation)


def clone_values(job: Job) -> dict[str, Any]:
    """Return the values of a form for a job like `job`; a complete job has left its queue, so its last one."""
    queue = job.queue_name or next((str(entry["q"]) for entry in reversed(history_of(job)) if entry.get("q")), "")
    return {
        "queue": token(queue) if queue else "",
        "arguments": editable_json(decode(job.raw_data), job.klass),
        "priority": f"{job.priority:g}",
        "retries": job.original_retries,
        "delay": 0,
        "tags": ", ".join(tag for tag in map(str, job.tags) if _is_editable(tag)),
    }


def _is_editable(tag: str) -> bool:
    """Return whether the form can show a tag; other tags are copied unseen."""
    return tag.isprintable() and "," not in tag
