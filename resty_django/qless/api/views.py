"""The views that look; verbs.py has those that change something."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.views import checked

from ..errors import NoSuchJob
from ..recurring import RecurringJob
from . import docs, serializers, shown
from .base import VIEW, QlessView


class QueuesView(QlessView):
    """All queues."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.queues
    def get(self, request: Request) -> Response:
        return Response({"queues": shown.value(self.jobs_client.queues.counts())})


class QueueView(QlessView):
    """One queue; one that was never used is empty."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.queue
    def get(self, request: Request, name: str) -> Response:
        return Response(shown.value(self.jobs_client.queues[name].counts()))


class StatsView(QlessView):
    """A queue on one day."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.stats
    def get(self, request: Request, name: str) -> Response:
        asked = checked(serializers.DateQuerySerializer(data=request.query_params))
        day = asked.get("date")
        moment = None if day is None else datetime.combine(day, time(), UTC).timestamp()
        return Response(shown.value(self.jobs_client.queues[name].stats(moment)))


class ThroughputView(QlessView):
    """Jobs completed."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.throughput
    def get(self, request: Request, name: str) -> Response:
        return Response(shown.value(self.jobs_client.queues[name].throughput()))


class QueueJobsView(QlessView):
    """The jobs of a queue in one state."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.queue_jobs
    def get(self, request: Request, name: str) -> Response:
        asked = checked(serializers.StateQuerySerializer(data=request.query_params))
        queue, state = self.jobs_client.queues[name], asked["state"]
        jids = getattr(queue.jobs, state)(asked["offset"], asked["count"])
        jobs = shown.briefs(self.jobs_client.jobs.multiget(*jids))
        return Response({"total": getattr(queue.counts(), state), "jobs": jobs})


class SearchView(QlessView):
    """Jobs wherever they are. Each call looks at a bounded number of them; `cursor` goes on."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.search
    def get(self, request: Request) -> Response:
        asked = checked(serializers.SearchQuerySerializer(data=request.query_params))
        jobs = self.jobs_client.jobs
        tag = asked.pop("tag", None)
        if tag is None:
            found = jobs.search(**asked)
            jids, cursor = found.jobs, shown.value(found.cursor)
        else:
            offset = int(asked["cursor"]) if asked["cursor"].isdecimal() else 0
            part = jobs.tagged(tag, offset, asked["count"])
            jids, end = part.jobs, offset + len(part.jobs)
            cursor = str(end) if jids and end < part.total else ""
        return Response({"jobs": shown.briefs(jobs.multiget(*jids)), "cursor": cursor})


class FailedView(QlessView):
    """Failed jobs by group."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.failed
    def get(self, request: Request) -> Response:
        groups = sorted(self.jobs_client.jobs.failed().items(), key=lambda item: (-item[1], item[0]))
        return Response({"groups": shown.value([{"group": group, "count": count} for group, count in groups])})


class GroupView(QlessView):
    """The failed jobs of a group, newest first."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.group
    def get(self, request: Request, group: str) -> Response:
        asked = checked(serializers.PageQuerySerializer(data=request.query_params))
        found = self.jobs_client.jobs.failed(group, asked["offset"], asked["count"])
        return Response({"total": found.total, "jobs": shown.briefs(found.jobs)})


class WorkersView(QlessView):
    """All workers, those seen last first."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.workers
    def get(self, request: Request) -> Response:
        return Response({"workers": shown.value(self.jobs_client.workers.counts())})


class WorkerView(QlessView):
    """The jobs of one worker; one that is not known has none."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.worker
    def get(self, request: Request, name: str) -> Response:
        found = self.jobs_client.workers[name]
        return Response(shown.value({"name": name, "jobs": found.jobs, "stalled": found.stalled}))


class RecurringView(QlessView):
    """Recurring jobs of one queue or of all."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.recurring
    def get(self, request: Request) -> Response:
        asked = checked(serializers.RecurringQuerySerializer(data=request.query_params))
        client, offset, left = self.jobs_client, asked["offset"], asked["count"]
        counted = [client.queues[asked["queue"]].counts()] if "queue" in asked else client.queues.counts()
        jids: list[str] = []
        for queue in counted:
            if offset < queue.recurring and left:
                part = client.queues[queue.name].jobs.recurring(offset, left)
                jids += part
                left -= len(part)
            offset = max(0, offset - queue.recurring)
        jobs = [job for jid in jids if isinstance(job := client.jobs.get(jid), RecurringJob)]
        return Response(
            {"total": sum(queue.recurring for queue in counted), "jobs": [shown.recurring(job) for job in jobs]}
        )


class RecurringJobView(QlessView):
    """One recurring job."""

    permissions: ClassVar = {"GET": VIEW}

    @docs.recurring_job
    def get(self, request: Request, jid: str) -> Response:
        found = self.jobs_client.jobs.get(jid)
        if not isinstance(found, RecurringJob):
            raise NoSuchJob(f"There is no recurring job {jid}.")
        return Response(shown.recurring(found))
