"""JSON of requests and responses."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers

from resty_django.api.fields import KnownFieldsOnly, StrictBooleanField, StrictCharField, StrictIntegerField

from ..clients.replies import QUEUE_STATES

MAX_JOBS_PER_PAGE: Final = 100
MAX_NUMBER: Final = 10**9
"""The largest offset, delay (seconds, 31 years) and priority. The server uses floating-point numbers, which represent
whole numbers up to a limit only."""


def _seconds(help_text: str) -> StrictIntegerField:
    return StrictIntegerField(required=False, default=0, min_value=0, max_value=MAX_NUMBER, help_text=help_text)


def _filter(help_text: str | None = None) -> serializers.CharField:
    return serializers.CharField(required=False, trim_whitespace=False, help_text=help_text)


# --- requests ---------------------------------------------------------------------------------------------------------


class RecurringQuerySerializer(serializers.Serializer[object]):
    queue = _filter("Only recurring jobs of this queue.")
    offset = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=MAX_NUMBER, help_text="Number of jobs to skip."
    )
    count = serializers.IntegerField(required=False, default=25, min_value=1, max_value=MAX_JOBS_PER_PAGE)


class DateQuerySerializer(serializers.Serializer[object]):
    date = serializers.DateField(required=False, help_text="A day (UTC), such as 2026-11-21. Default: today.")


class JobsQuerySerializer(serializers.Serializer[object]):
    state = serializers.ChoiceField(
        choices=(*QUEUE_STATES, "failed", "complete"), required=False, help_text="`stalled` needs a queue."
    )
    klass = _filter()
    queue = _filter()
    tag = _filter("Jobs with this tag. Other filters are ignored.")
    group = _filter("Failed jobs of this failure group. Other filters are ignored.")
    count = serializers.IntegerField(required=False, default=25, min_value=1, max_value=MAX_JOBS_PER_PAGE)
    cursor = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=1000,
        help_text="The cursor of the previous response.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Add `offset` to the filters of a list, whose cursor is an offset; a search has other cursors."""
        lists_queue = attrs.get("state") in QUEUE_STATES and attrs["state"] != "recurring"
        in_queue = "queue" in attrs and lists_queue and "klass" not in attrs
        if attrs.get("state") == "stalled" and not in_queue:
            raise serializers.ValidationError({"state": ["Pass a queue, and no class, with the state stalled."]})
        if "tag" in attrs or "group" in attrs or in_queue:
            cursor = attrs["cursor"] or "0"
            if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 10):
                raise serializers.ValidationError({"cursor": ["Pass the cursor of the previous response."]})
            attrs["offset"] = int(cursor)
        return attrs


class ArgumentsField(serializers.JSONField):
    """Arguments of a new job, which `tasks.calls` checks. (The base class fails if they are nested too deeply.)"""

    def to_internal_value(self, data: Any) -> Any:
        return data


class NewJobSerializer(KnownFieldsOnly):
    """A job to enqueue. Its task supplies missing fields."""

    klass = StrictCharField(help_text="The task or job class, one that workers may run.")
    queue = StrictCharField(required=False, help_text="Required if the task has no queue.")
    data = ArgumentsField(  # type: ignore[assignment]
        required=False, default=dict, help_text='The arguments; for a task, {"args": [...], "kwargs": {...}}.'
    )
    priority = StrictIntegerField(required=False, min_value=-MAX_NUMBER, max_value=MAX_NUMBER)
    retries = StrictIntegerField(required=False, min_value=0, max_value=1_000_000)
    delay = _seconds("Seconds before the job can run.")
    tags = serializers.ListField(required=False, child=StrictCharField(max_length=200), max_length=100)


class PauseSerializer(KnownFieldsOnly):
    """Options for pausing a queue."""

    stop_jobs = StrictBooleanField(
        required=False, default=False, help_text="Also take running jobs from their workers."
    )
    reason = StrictCharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=200,
        help_text="Shown next to the queue while it is paused.",
    )


class RetrySerializer(KnownFieldsOnly):
    """Options for retrying a job."""

    queue = StrictCharField(
        required=False, default="", allow_blank=True, help_text="The target queue. Default: the job's own."
    )
    delay = _seconds("Seconds before the job can run.")


class RetryGroupSerializer(KnownFieldsOnly):
    """Options for retrying the jobs of a group."""

    count = StrictIntegerField(required=False, default=MAX_JOBS_PER_PAGE, min_value=1, max_value=500)
    delay = _seconds("Seconds before the first job can run.")
    spread = _seconds("Seconds between two jobs.")


# --- responses --------------------------------------------------------------------------------------------------------


class QueueSerializer(serializers.Serializer[object]):
    """The jobs of a queue by state."""

    name = serializers.CharField()
    waiting = serializers.IntegerField()
    running = serializers.IntegerField(help_text="Running jobs, not counting stalled ones.")
    stalled = serializers.IntegerField(help_text="Running jobs whose lock has expired.")
    scheduled = serializers.IntegerField()
    depends = serializers.IntegerField()
    recurring = serializers.IntegerField()
    paused = serializers.BooleanField()


class QueuesSerializer(serializers.Serializer[object]):
    queues = QueueSerializer(many=True)


class SeriesSerializer(serializers.Serializer[object]):
    """Durations in seconds."""

    count = serializers.IntegerField()
    mean = serializers.FloatField()
    std = serializers.FloatField()
    histogram = serializers.ListField(
        child=serializers.FloatField(), help_text="Jobs of 0 to 59 s, 1 to 59 minutes, 1 to 23 hours, 1 to 6 days."
    )


class ThroughputSerializer(serializers.Serializer[object]):
    """Jobs completed; the current minute, hour and day come last."""

    minutes = serializers.ListField(child=serializers.IntegerField(), help_text="The last 60 minutes.")
    hours = serializers.ListField(child=serializers.IntegerField(), help_text="The last 48 hours.")
    days = serializers.ListField(child=serializers.IntegerField(), help_text="The last 30 days.")


class QueueStatsSerializer(serializers.Serializer[object]):
    """A queue on one day (UTC), and its throughput until now."""

    retries = serializers.IntegerField()
    failures = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="How many of the failures are still failed.")
    wait = SeriesSerializer(help_text="Waiting times.")
    run = SeriesSerializer(help_text="Running times.")
    throughput = ThroughputSerializer()


class JobSerializer(serializers.Serializer[object]):
    """A job in a list. Times are seconds since the epoch."""

    jid = serializers.CharField()
    klass = serializers.CharField()
    state = serializers.CharField()
    queue = serializers.CharField(allow_blank=True, help_text="Empty once the job is complete.")
    worker = serializers.CharField(allow_blank=True)
    priority = serializers.FloatField()
    retries = serializers.IntegerField()
    remaining = serializers.IntegerField()
    expires = serializers.FloatField(allow_null=True, help_text="Expiry time of the lock.")
    tags = serializers.ListField(child=serializers.CharField())
    tracked = serializers.BooleanField()
    txid = serializers.CharField(allow_null=True)
    request_id = serializers.CharField(allow_null=True)
    failure = serializers.DictField(allow_null=True, help_text="`group`, `when`, `worker`; for one job also `message`.")


class WholeJobSerializer(JobSerializer):
    """One job."""

    dependencies = serializers.ListField(child=serializers.CharField())
    dependents = serializers.ListField(child=serializers.CharField())
    spawned_from = serializers.CharField(allow_null=True)
    data = serializers.JSONField(  # type: ignore[assignment]
        help_text="The arguments, with secrets hidden; null if they are not JSON."
    )
    history = serializers.ListField(child=serializers.DictField(), help_text="Oldest first.")
    result = serializers.JSONField(allow_null=True)
    progress = serializers.FloatField(allow_null=True)
    progress_message = serializers.CharField(allow_blank=True)


class JobsSerializer(serializers.Serializer[object]):
    """A page of jobs."""

    jobs = JobSerializer(many=True)
    cursor = serializers.CharField(allow_blank=True, help_text="For the next request; empty at the end.")


class GroupSerializer(serializers.Serializer[object]):
    group = serializers.CharField()
    count = serializers.IntegerField()


class GroupsSerializer(serializers.Serializer[object]):
    """Failed jobs by group, the largest first."""

    groups = GroupSerializer(many=True)


class WorkerSerializer(serializers.Serializer[object]):
    name = serializers.CharField()
    jobs = serializers.IntegerField(help_text="Number of jobs that it runs.")
    stalled = serializers.IntegerField()


class WorkersSerializer(serializers.Serializer[object]):
    workers = WorkerSerializer(many=True)


class RecurringJobSerializer(serializers.Serializer[object]):
    """A recurring job."""

    jid = serializers.CharField()
    klass = serializers.CharField()
    queue = serializers.CharField()
    interval = serializers.FloatField(help_text="Seconds between two jobs.")
    next = serializers.FloatField(allow_null=True, help_text="When the next job is due.")
    count = serializers.IntegerField(help_text="Number of jobs created so far.")
    priority = serializers.FloatField()
    retries = serializers.IntegerField()
    backlog = serializers.IntegerField()
    tags = serializers.ListField(child=serializers.CharField())
    data = serializers.JSONField()  # type: ignore[assignment]


class RecurringJobsSerializer(serializers.Serializer[object]):
    """Recurring jobs, sorted by queue, then by due time."""

    total = serializers.IntegerField()
    jobs = RecurringJobSerializer(many=True)


class JidsSerializer(serializers.Serializer[object]):
    """The jids of the new or changed jobs."""

    jids = serializers.ListField(child=serializers.CharField())
