"""Views of the job queue: those that read, then those that change something."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import ClassVar, Final

from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.views import checked

from ..clients.client import Client
from ..clients.job import Job
from ..clients.queue import pause_with_reason, unpause_and_forget_reason
from ..clients.recurring import RecurringJob
from ..clients.replies import Group
from ..errors import GraphTooLarge, GroupError, NoSuchJob, QlessError
from ..models import FailureGroup, JobGroup, Queue
from ..models import Job as JobRow
from . import openapi, representations, serializers
from .base import CANCEL, PAUSE, RETRY, VIEW, QlessView

MAX_CONNECTED: Final = 2000
"""Maximum number of connected jobs for one request."""
MAX_MEMBERS: Final = 10_000
"""Maximum number of members of a group that a request cancels or retries."""

# --- reading ----------------------------------------------------------------------------------------------------------


class QueuesView(QlessView):
    """List all queues."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.queues
    def get(self, request: Request) -> Response:
        return Response({"queues": representations.to_json(self.jobs_client.queues.counts())})


class QueueView(QlessView):
    """Show one queue; a queue that was never used is empty."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.queue
    def get(self, request: Request, name: str) -> Response:
        return Response(representations.to_json(self.jobs_client.queues[name].counts()))


class StatsView(QlessView):
    """Show the statistics of a queue on one day."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.stats
    def get(self, request: Request, name: str) -> Response:
        query = checked(serializers.DateQuerySerializer(data=request.query_params))
        day = query.get("date")
        moment = None if day is None else datetime.combine(day, time(), UTC).timestamp()
        return Response(representations.to_json(self.jobs_client.queues[name].stats(moment)))


class ThroughputView(QlessView):
    """Show how many jobs were completed."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.throughput
    def get(self, request: Request, name: str) -> Response:
        return Response(representations.to_json(self.jobs_client.queues[name].throughput()))


class QueueJobsView(QlessView):
    """List the jobs of a queue in one state."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.queue_jobs
    def get(self, request: Request, name: str) -> Response:
        query = checked(serializers.StateQuerySerializer(data=request.query_params))
        queue, state = self.jobs_client.queues[name], query["state"]
        jids = queue.jobs.in_state(state, query["offset"], query["count"])
        jobs = representations.job_summaries(self.jobs_client.jobs.multiget(*jids))
        return Response({"total": getattr(queue.counts(), state), "jobs": jobs})


class SearchView(QlessView):
    """Search all jobs. Each call scans a bounded number of jobs; `cursor` continues the search."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.search
    def get(self, request: Request) -> Response:
        query = checked(serializers.SearchQuerySerializer(data=request.query_params))
        jobs = self.jobs_client.jobs
        tag = query.pop("tag", None)
        if tag is None:
            search = jobs.search(**query)
            jids, cursor = search.jobs, representations.to_json(search.cursor)
        else:
            offset = int(query["cursor"] or 0)
            tagged = jobs.tagged(tag, offset, query["count"])
            jids, end = tagged.jobs, offset + len(tagged.jobs)
            cursor = str(end) if jids and end < tagged.total else ""
        return Response({"jobs": representations.job_summaries(jobs.multiget(*jids)), "cursor": cursor})


class FailedView(QlessView):
    """Count failed jobs by group."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.failed
    def get(self, request: Request) -> Response:
        groups = sorted(self.jobs_client.jobs.failed().items(), key=lambda item: (-item[1], item[0]))
        return Response(
            {"groups": representations.to_json([{"group": group, "count": count} for group, count in groups])}
        )


class GroupView(QlessView):
    """List the failed jobs of a group, newest first."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.group
    def get(self, request: Request, group: str) -> Response:
        query = checked(serializers.PageQuerySerializer(data=request.query_params))
        failures = self.jobs_client.jobs.failed(group, query["offset"], query["count"])
        return Response({"total": failures.total, "jobs": representations.job_summaries(failures.jobs)})


class GraphView(QlessView):
    """Show the jobs that are connected with a job through dependencies and groups."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.graph
    def get(self, request: Request, jid: str) -> Response:
        return Response(representations.connected_jobs(self.jobs_client.jobs.graph(jid, MAX_CONNECTED)))


class JobGroupsView(QlessView):
    """List groups of jobs, newest first."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.job_groups
    def get(self, request: Request) -> Response:
        query = checked(serializers.PageQuerySerializer(data=request.query_params))
        return Response(representations.to_json(self.jobs_client.groups.list(query["offset"], query["count"])))


class JobGroupView(QlessView):
    """Show one group."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.job_group
    def get(self, request: Request, group: str) -> Response:
        return Response(representations.to_json(_group(self.jobs_client, group)))


class MembersView(QlessView):
    """List the members of a group."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.members
    def get(self, request: Request, group: str) -> Response:
        query = checked(serializers.PageQuerySerializer(data=request.query_params))
        total = _group(self.jobs_client, group).total
        members = self.jobs_client.groups.jobs(group, query["offset"], query["count"])
        jobs = [{"jid": jid, "state": state} for jid, state in members]
        return Response(representations.to_json({"total": total, "jobs": jobs}))


class StuckView(QlessView):
    """List the jobs of a queue that wait for something that will not end."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.stuck
    def get(self, request: Request) -> Response:
        query = checked(serializers.StuckQuerySerializer(data=request.query_params))
        page = self.jobs_client.queues[query["queue"]].stuck(str(query["cursor"]))
        return Response(representations.to_json(page))


class WorkersView(QlessView):
    """List all workers, most recently seen first."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.workers
    def get(self, request: Request) -> Response:
        return Response({"workers": representations.to_json(self.jobs_client.workers.counts())})


class WorkerView(QlessView):
    """List the jobs of one worker; an unknown worker has none."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.worker
    def get(self, request: Request, name: str) -> Response:
        worker = self.jobs_client.workers[name]
        return Response(representations.to_json({"name": name, "jobs": worker.jobs, "stalled": worker.stalled}))


class RecurringView(QlessView):
    """List the recurring jobs of one queue or of all queues."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.recurring
    def get(self, request: Request) -> Response:
        query = checked(serializers.RecurringQuerySerializer(data=request.query_params))
        client, offset, count_left = self.jobs_client, query["offset"], query["count"]
        counts = [client.queues[query["queue"]].counts()] if "queue" in query else client.queues.counts()
        jids: list[str] = []
        for queue in counts:
            if offset < queue.recurring and count_left:
                queue_jids = client.queues[queue.name].jobs.recurring(offset, count_left)
                jids += queue_jids
                count_left -= len(queue_jids)
            offset = max(0, offset - queue.recurring)
        jobs = [job for jid in jids if isinstance(job := client.jobs.get(jid), RecurringJob)]
        return Response(
            {
                "total": sum(queue.recurring for queue in counts),
                "jobs": [representations.recurring_job(job) for job in jobs],
            }
        )


class RecurringJobView(QlessView):
    """Show one recurring job."""

    permissions: ClassVar = {"GET": VIEW}

    @openapi.recurring_job
    def get(self, request: Request, jid: str) -> Response:
        job = self.jobs_client.jobs.get(jid)
        if not isinstance(job, RecurringJob):
            raise NoSuchJob(f"The recurring job {jid} does not exist.")
        return Response(representations.recurring_job(job))


# --- changing ---------------------------------------------------------------------------------------------------------


class JobView(QlessView):
    """Show or cancel one job."""

    permissions: ClassVar = {"GET": VIEW, "DELETE": CANCEL}

    @openapi.job
    def get(self, request: Request, jid: str) -> Response:
        job = _job(self.jobs_client, jid)
        return Response(representations.job_detail(job, job.result()))

    @openapi.cancel
    def delete(self, request: Request, jid: str) -> Response:
        job = _job(self.jobs_client, jid)
        if job.state == "complete":
            raise QlessError(f"The job {jid} is already complete. It is deleted automatically (option jobs-history).")
        job.cancel()
        self.log_operation(request, JobRow.from_name(jid), "Canceled")
        return Response({"jids": [jid]})


class RetryView(QlessView):
    """Retry a failed job."""

    permissions: ClassVar = {"POST": RETRY}

    @openapi.retry
    def post(self, request: Request, jid: str) -> Response:
        options = checked(serializers.RetrySerializer(data=request.data))
        job = _job(self.jobs_client, jid)
        if job.state != "failed":
            raise QlessError(f"The job {jid} has not failed. Its state is {job.state}.")
        job.requeue(options["queue"] or job.queue_name, delay=options["delay"])
        queue_text = f" in the queue {options['queue']}" if options["queue"] else ""
        delay_text = f" after {options['delay']} s" if options["delay"] else ""
        self.log_operation(request, JobRow.from_name(jid), f"Retried{queue_text}{delay_text}")
        return Response({"jids": [jid]})


class RetryGroupView(QlessView):
    """Retry failed jobs of a group, newest first, each in its own queue."""

    permissions: ClassVar = {"POST": RETRY}

    @openapi.retry_group
    def post(self, request: Request, group: str) -> Response:
        options = checked(serializers.RetryGroupSerializer(data=request.data))
        failures = self.jobs_client.jobs.failed(group, 0, options["count"])
        jids: list[str] = []
        try:
            for number, job in enumerate(failures.jobs):
                try:
                    job.requeue(job.queue_name, delay=options["delay"] + number * options["spread"])
                except NoSuchJob:  # canceled meanwhile
                    continue
                jids.append(job.jid)
        finally:  # log the jobs that were retried before an error
            if jids:
                self.log_operation(
                    request, FailureGroup.from_name(group), f"Retried {len(jids)} of {failures.total}", *jids
                )
        return Response(representations.to_json({"jids": jids}))


class CancelGraphView(QlessView):
    """Cancel all jobs that are connected with a job and not complete."""

    permissions: ClassVar = {"POST": CANCEL}

    @openapi.cancel_graph
    def post(self, request: Request, jid: str) -> Response:
        with self.logged_if_interrupted(request, JobRow.from_name(jid), "Canceling all connected jobs"):
            count = self.jobs_client.cancel_graph(jid, MAX_CONNECTED)
        self.log_operation(request, JobRow.from_name(jid), f"Canceled all {count} connected jobs")
        return Response({"count": count})


class RetryGraphView(QlessView):
    """Retry all jobs that are connected with a job and failed in a run, each in its own queue."""

    permissions: ClassVar = {"POST": RETRY}

    @openapi.retry_graph
    def post(self, request: Request, jid: str) -> Response:
        with self.logged_if_interrupted(request, JobRow.from_name(jid), "Retrying connected jobs"):
            count = self.jobs_client.retry_graph(jid, MAX_CONNECTED)
        self.log_operation(request, JobRow.from_name(jid), f"Retried {count} connected jobs")
        return Response({"count": count})


class CancelGroupView(QlessView):
    """Cancel the members of a group that have not ended, and the jobs that only these depend on."""

    permissions: ClassVar = {"POST": CANCEL}

    @openapi.cancel_group
    def post(self, request: Request, group: str) -> Response:
        _bounded_group(self.jobs_client, group)
        with self.logged_if_interrupted(request, JobGroup.from_name(group), "Canceling jobs"):
            count = self.jobs_client.groups.cancel(group)
        self.log_operation(request, JobGroup.from_name(group), f"Canceled {count} jobs")
        return Response({"count": count})


class RetryMembersView(QlessView):
    """Retry the members of a group that failed, and the jobs because of which members failed."""

    permissions: ClassVar = {"POST": RETRY}

    @openapi.retry_members
    def post(self, request: Request, group: str) -> Response:
        _bounded_group(self.jobs_client, group)
        with self.logged_if_interrupted(request, JobGroup.from_name(group), "Retrying jobs"):
            count = self.jobs_client.groups.retry(group)
        self.log_operation(request, JobGroup.from_name(group), f"Retried {count} jobs")
        return Response({"count": count})


class PauseView(QlessView):
    """Pause a queue."""

    permissions: ClassVar = {"POST": PAUSE}

    @openapi.pause
    def post(self, request: Request, name: str) -> Response:
        options = checked(serializers.PauseSerializer(data=request.data))
        queue = self.jobs_client.queues[name]
        pause_with_reason(queue, options["reason"], options["stop_jobs"])
        stopped = ", its running jobs stopped" if options["stop_jobs"] else ""
        reason = f" ({options['reason']})" if options["reason"] else ""
        self.log_operation(request, Queue.from_name(name), f"Paused{stopped}{reason}")
        return Response(representations.to_json(queue.counts()))


class UnpauseView(QlessView):
    """Unpause a queue."""

    permissions: ClassVar = {"POST": PAUSE}

    @openapi.unpause
    def post(self, request: Request, name: str) -> Response:
        queue = self.jobs_client.queues[name]
        unpause_and_forget_reason(queue)
        self.log_operation(request, Queue.from_name(name), "Unpaused")
        return Response(representations.to_json(queue.counts()))


def _job(client: Client, jid: str) -> Job:
    job = client.jobs.get(jid)
    if not isinstance(job, Job):
        raise NoSuchJob(f"The job {jid} does not exist.")
    return job


def _group(client: Client, group_id: str) -> Group:
    group = client.groups.get(group_id)
    if group is None:
        raise GroupError(f"The group {group_id} does not exist.")
    return group


def _bounded_group(client: Client, group_id: str) -> None:
    """Raise `GraphTooLarge` if a group is too large for one request, and `GroupError` if it does not exist."""
    if _group(client, group_id).total > MAX_MEMBERS:
        raise GraphTooLarge(f"The group has more than {MAX_MEMBERS} members. Use client.groups in code.")
