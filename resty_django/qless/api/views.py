"""Views of the job queue: those that read, then those that change something."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any, ClassVar

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.endpoints import Endpoint
from resty_django.database.history import username

from ..clients.client import Client
from ..clients.job import Job
from ..clients.recurring import RecurringJob
from ..errors import InvalidArgument, NoSuchJob, QlessError
from ..models import FailureGroup, Queue
from ..models import Job as JobRow
from ..tasks import calls
from . import representations, serializers
from .base import QlessView

VIEW, PAUSE_QUEUE, RETRY = "resty_qless.view_job", "resty_qless.pause_queue", "resty_qless.retry_job"
"""Permissions."""

# --- reading ----------------------------------------------------------------------------------------------------------


class QueuesView(QlessView):
    """List all queues, with their jobs by state."""

    permissions: ClassVar = {"GET": VIEW}

    @Endpoint(serializers.QueuesSerializer)
    def get(self, request: Request) -> Response:
        return Response({"queues": representations.to_json(self.jobs_client.queues.counts())})


class QueueView(QlessView):
    """Show one queue; a queue that was never used is empty."""

    permissions: ClassVar = {"GET": VIEW}

    @Endpoint(serializers.QueueSerializer)
    def get(self, request: Request, name: str) -> Response:
        return Response(representations.to_json(self.jobs_client.queues[name].counts()))


class StatsView(QlessView):
    """Show the statistics of a queue on one day, and its throughput."""

    permissions: ClassVar = {"GET": VIEW}

    @Endpoint(serializers.QueueStatsSerializer, query=serializers.DateQuerySerializer)
    def get(self, request: Request, name: str, query: dict[str, Any]) -> Response:
        queue, day = self.jobs_client.queues[name], query.get("date")
        stats = queue.stats(None if day is None else datetime.combine(day, time(), UTC).timestamp())
        return Response(representations.to_json({**msgspec.structs.asdict(stats), "throughput": queue.throughput()}))


class FailedView(QlessView):
    """Count failed jobs by failure group."""

    permissions: ClassVar = {"GET": VIEW}

    @Endpoint(serializers.GroupsSerializer)
    def get(self, request: Request) -> Response:
        counts = sorted(self.jobs_client.jobs.failed().items(), key=lambda item: (-item[1], item[0]))
        groups = [{"group": group, "count": count} for group, count in counts]
        return Response({"groups": representations.to_json(groups)})


class WorkersView(QlessView):
    """List all workers, most recently seen first."""

    permissions: ClassVar = {"GET": VIEW}

    @Endpoint(serializers.WorkersSerializer)
    def get(self, request: Request) -> Response:
        return Response({"workers": representations.to_json(self.jobs_client.workers.counts())})


class RecurringView(QlessView):
    """List the recurring jobs of one queue or of all queues."""

    permissions: ClassVar = {"GET": VIEW}

    @Endpoint(serializers.RecurringJobsSerializer, query=serializers.RecurringQuerySerializer)
    def get(self, request: Request, query: dict[str, Any]) -> Response:
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


# --- changing ---------------------------------------------------------------------------------------------------------


class JobsView(QlessView):
    """List and enqueue jobs."""

    permissions: ClassVar = {"GET": VIEW, "POST": "resty_qless.start_job"}

    @Endpoint(serializers.JobsSerializer, query=serializers.JobsQuerySerializer)
    def get(self, request: Request, query: dict[str, Any]) -> Response:
        """List the jobs of a queue in one state, of a tag or of a failure group, or search all jobs.

        A search examines a bounded number of jobs in each call, so a page may be empty although `cursor` continues it.
        """
        jobs, offset, count = self.jobs_client.jobs, query.get("offset"), query["count"]
        if offset is None:
            page = jobs.search(**query)
            jids, cursor = page.jobs, representations.to_json(page.cursor)
        else:
            if "tag" in query:
                jids = jobs.tagged(query["tag"], offset, count).jobs
            elif "group" in query:
                jids = [job.jid for job in jobs.failed(query["group"], offset, count).jobs]
            else:
                jids = self.jobs_client.queues[query["queue"]].jobs.in_state(query["state"], offset, count)
            cursor = str(offset + count) if len(jids) == count else ""
        return Response({"jobs": representations.job_summaries(jobs.multiget(*jids)), "cursor": cursor})

    @Endpoint(serializers.JidsSerializer, body=serializers.NewJobSerializer, status=201)
    def post(self, request: Request, body: dict[str, Any]) -> Response:
        """Enqueue a job.

        It is a new job even if the task is unique.
        """
        klass = body["klass"]
        choice = next((choice for choice in calls.choices() if choice.klass == klass), None)
        if choice is None:
            raise InvalidArgument(f"{klass} is not a task that workers may run. Pass the name of one.")
        new_job = {name: getattr(choice, name) for name in ("queue", "priority", "retries", "tags")} | body
        if not new_job["queue"]:
            raise InvalidArgument(f"{klass} has no queue. Pass one.")
        calls.check_new_data(klass, new_job["data"], self.jobs_client.clock())
        jid = calls.put(self.jobs_client, **new_job)
        self.log_operation(request, JobRow.from_name(jid), f"Created: {klass} in {new_job['queue']}")
        return Response({"jids": [jid]}, status=201)


class JobView(QlessView):
    """Show or cancel one job."""

    permissions: ClassVar = {"GET": VIEW, "DELETE": "resty_qless.cancel_job"}

    @Endpoint(serializers.WholeJobSerializer)
    def get(self, request: Request, jid: str) -> Response:
        """Show one job, with its arguments, history and result."""
        job = _job(self.jobs_client, jid)
        return Response(representations.job_detail(job, job.result()))

    @Endpoint(serializers.JidsSerializer)
    def delete(self, request: Request, jid: str) -> Response:
        """Cancel a job, which deletes it."""
        job = _job(self.jobs_client, jid)
        if job.state == "complete":
            raise QlessError(f"The job {jid} is already complete. It is deleted automatically (option jobs-history).")
        job.cancel()
        self.log_operation(request, JobRow.from_name(jid), "Canceled")
        return Response({"jids": [jid]})


class RetryView(QlessView):
    """Retry a failed job."""

    permissions: ClassVar = {"POST": RETRY}

    @Endpoint(serializers.JidsSerializer, body=serializers.RetrySerializer)
    def post(self, request: Request, jid: str, body: dict[str, Any]) -> Response:
        job = _job(self.jobs_client, jid)
        if job.state != "failed":
            raise QlessError(f"The job {jid} has not failed. Its state is {job.state}.")
        job.requeue(body["queue"] or job.queue_name, delay=body["delay"])
        queue_text = f" in the queue {body['queue']}" if body["queue"] else ""
        delay_text = f" after {body['delay']} s" if body["delay"] else ""
        self.log_operation(request, JobRow.from_name(jid), f"Retried{queue_text}{delay_text}")
        return Response({"jids": [jid]})


class RetryGroupView(QlessView):
    """Retry failed jobs of a group, newest first, each in its own queue."""

    permissions: ClassVar = {"POST": RETRY}

    @Endpoint(serializers.JidsSerializer, body=serializers.RetryGroupSerializer)
    def post(self, request: Request, group: str, body: dict[str, Any]) -> Response:
        failures = self.jobs_client.jobs.failed(group, 0, body["count"])
        jids: list[str] = []
        try:
            for number, job in enumerate(failures.jobs):
                try:
                    job.requeue(job.queue_name, delay=body["delay"] + number * body["spread"])
                except NoSuchJob:  # canceled meanwhile
                    continue
                jids.append(job.jid)
        finally:  # log the jobs that were retried before an error
            if jids:
                self.log_operation(
                    request, FailureGroup.from_name(group), f"Retried {len(jids)} of {failures.total}", *jids
                )
        return Response(representations.to_json({"jids": jids}))


class PauseView(QlessView):
    """Pause a queue."""

    permissions: ClassVar = {"POST": PAUSE_QUEUE}

    @Endpoint(serializers.QueueSerializer, body=serializers.PauseSerializer)
    def post(self, request: Request, name: str, body: dict[str, Any]) -> Response:
        queue = self.jobs_client.queues[name]
        queue.pause(body["stop_jobs"], reason=body["reason"], by=username(request.user))
        stopped = ", its running jobs stopped" if body["stop_jobs"] else ""
        reason = f" ({body['reason']})" if body["reason"] else ""
        self.log_operation(request, Queue.from_name(name), f"Paused{stopped}{reason}")
        return Response(representations.to_json(queue.counts()))


class UnpauseView(QlessView):
    """Unpause a queue."""

    permissions: ClassVar = {"POST": PAUSE_QUEUE}

    @Endpoint(serializers.QueueSerializer)
    def post(self, request: Request, name: str) -> Response:
        queue = self.jobs_client.queues[name]
        queue.unpause()
        self.log_operation(request, Queue.from_name(name), "Unpaused")
        return Response(representations.to_json(queue.counts()))


def _job(client: Client, jid: str) -> Job:
    job = client.jobs.get(jid)
    if not isinstance(job, Job):
        raise NoSuchJob(f"The job {jid} does not exist.")
    return job
