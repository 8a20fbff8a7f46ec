"""OpenAPI descriptions of the views; without drf-spectacular they have no effect."""

from __future__ import annotations

from typing import Any

from resty_django.api.openapi import REQUEST_ERRORS, Decorator, Examples, describe, path_parameter, responses
from resty_django.api.serializers import ErrorSerializer

from . import serializers

_ERRORS: Examples = {
    **REQUEST_ERRORS,
    404: (
        "The job or the group does not exist.",
        {
            "no_such_job": {"message": "The job 5f0e8a4ccf7b4b0bb3a3a6e4d5a7c1f2 does not exist."},
            "no_such_group": {"message": "The group import-7 does not exist."},
        },
    ),
    409: (
        "The job's state does not allow this, other jobs depend on it, or too many jobs are connected with it.",
        {"dependency": {"message": "Cancel(): a is a dependency of b but is not mentioned to be canceled"}},
    ),
    502: (
        "The stored data cannot be read, or the server refused the call.",
        {"refused": {"message": "The server of the job queue refused the call."}},
    ),
    503: (
        "The server of the job queue does not answer. See Retry-After.",
        {"unavailable": {"message": "The job queue did not answer. Try again shortly."}},
    ),
}
_PATHS = {"name": "The name", "jid": "The jid", "group": "The group"}


def _describe(
    name: str, summary: str, success: Any, *statuses: int, path: str = "", query: Any = None, body: Any = None
) -> Decorator[Any]:
    text = "{}, escaped twice if it contains characters other than letters, digits, - and _."
    parameters = [*([query] if query else []), *(path_parameter(path, text.format(_PATHS[path])) if path else [])]
    errors = {status: _ERRORS[status] for status in (400, 401, 403, 502, 503, *statuses)}
    return describe(
        operation_id=f"jobs_{name}",
        summary=summary,
        parameters=parameters,
        request=body,
        responses=responses({200: success}, errors, ErrorSerializer),
        tags=["jobs"],
    )


queues = _describe("queues", "All queues", serializers.QueuesSerializer)
queue = _describe("queue", "One queue", serializers.QueueSerializer, path="name")
stats = _describe(
    "queue_stats",
    "Statistics of a queue on one day",
    serializers.QueueStatsSerializer,
    path="name",
    query=serializers.DateQuerySerializer,
)
throughput = _describe("queue_throughput", "Jobs completed", serializers.ThroughputSerializer, path="name")
queue_jobs = _describe(
    "queue_jobs",
    "Jobs of a queue in one state",
    serializers.JobsSerializer,
    path="name",
    query=serializers.StateQuerySerializer,
)
pause = _describe(
    "queue_pause", "Pause a queue", serializers.QueueSerializer, path="name", body=serializers.PauseSerializer
)
unpause = _describe("queue_unpause", "Unpause a queue", serializers.QueueSerializer, path="name")
search = _describe("search", "Find jobs", serializers.FoundSerializer, query=serializers.SearchQuerySerializer)
job = _describe("job", "One job", serializers.WholeJobSerializer, 404, path="jid")
cancel = _describe("job_cancel", "Delete a job", serializers.DoneSerializer, 404, 409, path="jid")
retry = _describe(
    "job_retry",
    "Retry a failed job",
    serializers.DoneSerializer,
    404,
    409,
    path="jid",
    body=serializers.RetrySerializer,
)
graph = _describe("job_graph", "Connected jobs", serializers.GraphSerializer, 404, 409, path="jid")
cancel_graph = _describe(
    "job_graph_cancel", "Delete all connected jobs", serializers.CountSerializer, 404, 409, path="jid"
)
retry_graph = _describe(
    "job_graph_retry", "Retry all connected jobs that failed", serializers.CountSerializer, 404, 409, path="jid"
)
job_groups = _describe(
    "groups", "Groups of jobs", serializers.JobGroupsSerializer, query=serializers.PageQuerySerializer
)
job_group = _describe("group", "One group", serializers.JobGroupSerializer, 404, path="group")
members = _describe(
    "group_jobs",
    "Members of a group",
    serializers.MembersSerializer,
    404,
    path="group",
    query=serializers.PageQuerySerializer,
)
cancel_group = _describe(
    "group_cancel", "Delete the members that have not ended", serializers.CountSerializer, 404, 409, path="group"
)
retry_members = _describe(
    "group_retry", "Retry the members that failed", serializers.CountSerializer, 404, 409, path="group"
)
stuck = _describe("stuck", "Stuck jobs of a queue", serializers.StuckSerializer, query=serializers.StuckQuerySerializer)
failed = _describe("failed", "Failed jobs by group", serializers.GroupsSerializer)
group = _describe(
    "failed_group",
    "Failed jobs of a group",
    serializers.JobsSerializer,
    path="group",
    query=serializers.PageQuerySerializer,
)
retry_group = _describe(
    "failed_group_retry",
    "Retry failed jobs of a group",
    serializers.DoneSerializer,
    path="group",
    body=serializers.RetryGroupSerializer,
)
workers = _describe("workers", "All workers", serializers.WorkersSerializer)
worker = _describe("worker", "Jobs of a worker", serializers.WorkerJobsSerializer, path="name")
recurring = _describe(
    "recurring", "Recurring jobs", serializers.RecurringJobsSerializer, query=serializers.RecurringQuerySerializer
)
recurring_job = _describe("recurring_job", "One recurring job", serializers.RecurringJobSerializer, 404, path="jid")
