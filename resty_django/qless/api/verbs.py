"""One job, and the views that change something."""

from __future__ import annotations

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from resty_django.api.views import checked

from .. import pauses
from ..clients import Client
from ..errors import NoSuchJob, QlessError
from ..job import Job
from ..models import FailureGroup, Queue
from ..models import Job as JobRow
from . import docs, serializers, shown
from .base import CANCEL, PAUSE, RETRY, VIEW, QlessView


class JobView(QlessView):
    """One job: to look at, or to delete."""

    permissions: ClassVar = {"GET": VIEW, "DELETE": CANCEL}

    @docs.job
    def get(self, request: Request, jid: str) -> Response:
        job = _job(self.jobs_client, jid)
        return Response(shown.whole(job, job.result()))

    @docs.cancel
    def delete(self, request: Request, jid: str) -> Response:
        job = _job(self.jobs_client, jid)
        if job.state == "complete":
            raise QlessError(f"The job {jid} is complete: it goes by itself, after the seconds of jobs-history.")
        job.cancel()
        self.done(request, JobRow.called(jid), "Canceled")
        return Response({"jids": [jid]})


class RetryView(QlessView):
    """Lets a failed job wait again."""

    permissions: ClassVar = {"POST": RETRY}

    @docs.retry
    def post(self, request: Request, jid: str) -> Response:
        asked = checked(serializers.RetrySerializer(data=request.data))
        job = _job(self.jobs_client, jid)
        if job.state != "failed":
            raise QlessError(f"The job {jid} has not failed, it is {job.state}.")
        job.requeue(asked["queue"] or job.queue_name, delay=asked["delay"])
        where = f" in the queue {asked['queue']}" if asked["queue"] else ""
        when = f" after {asked['delay']} s" if asked["delay"] else ""
        self.done(request, JobRow.called(jid), f"Retried{where}{when}")
        return Response({"jids": [jid]})


class RetryGroupView(QlessView):
    """Lets failed jobs of a group wait again, the newest first, each in its own queue."""

    permissions: ClassVar = {"POST": RETRY}

    @docs.retry_group
    def post(self, request: Request, group: str) -> Response:
        asked = checked(serializers.RetryGroupSerializer(data=request.data))
        found = self.jobs_client.jobs.failed(group, 0, asked["count"])
        jids: list[str] = []
        try:
            for number, job in enumerate(found.jobs):
                try:
                    job.requeue(job.queue_name, delay=asked["delay"] + number * asked["spread"])
                except NoSuchJob:  # canceled in the meantime
                    continue
                jids.append(job.jid)
        finally:  # those before an error are to be told as well
            if jids:
                self.done(request, FailureGroup.called(group), f"Retried {len(jids)} of {found.total}", *jids)
        return Response(shown.value({"jids": jids}))


class PauseView(QlessView):
    """Hands out no more jobs of a queue."""

    permissions: ClassVar = {"POST": PAUSE}

    @docs.pause
    def post(self, request: Request, name: str) -> Response:
        asked = checked(serializers.PauseSerializer(data=request.data))
        queue = self.jobs_client.queues[name]
        pauses.pause(queue, asked["reason"], asked["stop_jobs"])
        stopped = ", its running jobs stopped" if asked["stop_jobs"] else ""
        reason = f" ({asked['reason']})" if asked["reason"] else ""
        self.done(request, Queue.called(name), f"Paused{stopped}{reason}")
        return Response(shown.value(queue.counts()))


class UnpauseView(QlessView):
    """Hands them out again."""

    permissions: ClassVar = {"POST": PAUSE}

    @docs.unpause
    def post(self, request: Request, name: str) -> Response:
        queue = self.jobs_client.queues[name]
        pauses.unpause(queue)
        self.done(request, Queue.called(name), "Unpaused")
        return Response(shown.value(queue.counts()))


def _job(client: Client, jid: str) -> Job:
    found = client.jobs.get(jid)
    if not isinstance(found, Job):
        raise NoSuchJob(f"There is no job {jid}.")
    return found
