"""The descriptions for OpenAPI; without drf-spectacular, nothing."""

from __future__ import annotations

from typing import Any

from resty_django.api.describing import REQUEST_ERRORS, Decorator, Examples, describe, path_parameter, responses
from resty_django.api.serializers import ErrorSerializer

from . import serializers as given

_ERRORS: Examples = {
    **REQUEST_ERRORS,
    404: ("There is no such job.", {"no_such_job": {"message": "There is no job 5f0e8a4ccf7b4b0bb3a3a6e4d5a7c1f2."}}),
    409: (
        "Not in this state, or others depend on it.",
        {"dependency": {"message": "Cancel(): a is a dependency of b but is not mentioned to be canceled"}},
    ),
    502: (
        "What is stored cannot be read, or the server refused the call.",
        {"refused": {"message": "The server of the job queue refused the call."}},
    ),
    503: (
        "The server of the job queue does not answer; see Retry-After.",
        {"unavailable": {"message": "The job queue did not answer; try again shortly."}},
    ),
}
_PATHS = {"name": "The name", "jid": "The jid", "group": "The group"}


def _told(
    name: str, summary: str, good: Any, *statuses: int, path: str = "", query: Any = None, body: Any = None
) -> Decorator[Any]:
    text = "{}, escaped once more than usual where it holds other characters than letters, digits, - and _."
    parameters = [*([query] if query else []), *(path_parameter(path, text.format(_PATHS[path])) if path else [])]
    errors = {status: _ERRORS[status] for status in (400, 401, 403, 502, 503, *statuses)}
    return describe(
        operation_id=f"jobs_{name}",
        summary=summary,
        parameters=parameters,
        request=body,
        responses=responses({200: good}, errors, ErrorSerializer),
        tags=["jobs"],
    )


queues = _told("queues", "All queues", given.QueuesSerializer)
queue = _told("queue", "One queue", given.QueueSerializer, path="name")
stats = _told(
    "queue_stats", "A queue on one day", given.QueueStatsSerializer, path="name", query=given.DateQuerySerializer
)
throughput = _told("queue_throughput", "Jobs completed", given.ThroughputSerializer, path="name")
queue_jobs = _told(
    "queue_jobs", "Its jobs in one state", given.JobsSerializer, path="name", query=given.StateQuerySerializer
)
pause = _told("queue_pause", "Pause a queue", given.QueueSerializer, path="name", body=given.PauseSerializer)
unpause = _told("queue_unpause", "Let it go on", given.QueueSerializer, path="name")
search = _told("search", "Find jobs", given.FoundSerializer, query=given.SearchQuerySerializer)
job = _told("job", "One job", given.WholeJobSerializer, 404, path="jid")
cancel = _told("job_cancel", "Delete a job", given.DoneSerializer, 404, 409, path="jid")
retry = _told(
    "job_retry", "Let a failed job wait again", given.DoneSerializer, 404, 409, path="jid", body=given.RetrySerializer
)
failed = _told("failed", "Failed jobs by group", given.GroupsSerializer)
group = _told(
    "failed_group", "The failed jobs of a group", given.JobsSerializer, path="group", query=given.PageQuerySerializer
)
retry_group = _told(
    "failed_group_retry",
    "Let jobs of a group wait again",
    given.DoneSerializer,
    path="group",
    body=given.RetryGroupSerializer,
)
workers = _told("workers", "All workers", given.WorkersSerializer)
worker = _told("worker", "The jobs of a worker", given.WorkerJobsSerializer, path="name")
recurring = _told("recurring", "Recurring jobs", given.RecurringJobsSerializer, query=given.RecurringQuerySerializer)
recurring_job = _told("recurring_job", "One recurring job", given.RecurringJobSerializer, 404, path="jid")
