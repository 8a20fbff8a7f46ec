"""JSON of requests and responses."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers

from resty_django.api.fields import KnownFieldsOnly, StrictBooleanField, StrictCharField, StrictIntegerField

MOST: Final = 100
"""Maximum number of jobs on a page."""
MOST_RETRIED: Final = 500
FARTHEST: Final = 10**9
"""The largest offset."""
LONGEST_DELAY: Final = 10**9
"""Seconds (31 years). The server uses floating-point numbers, which represent whole numbers up to a limit only."""
LONGEST_CURSOR: Final = 1000
DIGITS: Final = len(str(FARTHEST)) - 1
STATES: Final = ("waiting", "running", "stalled", "scheduled", "depends")
SEARCHED: Final = ("waiting", "running", "scheduled", "depends", "recurring", "failed", "complete")


# --- requests ---------------------------------------------------------------------------------------------------------


class PageQuerySerializer(serializers.Serializer[Any]):
    offset = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=FARTHEST, help_text="Number of jobs to skip."
    )
    count = serializers.IntegerField(required=False, default=25, min_value=1, max_value=MOST)


class StateQuerySerializer(PageQuerySerializer):
    state = serializers.ChoiceField(choices=STATES, required=False, default="waiting")


class RecurringQuerySerializer(PageQuerySerializer):
    queue = serializers.CharField(required=False, trim_whitespace=False, help_text="Only recurring jobs of this queue.")


class StuckQuerySerializer(serializers.Serializer[Any]):
    queue = serializers.CharField(trim_whitespace=False)
    cursor = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=FARTHEST, help_text="The cursor of the previous response."
    )


class DateQuerySerializer(serializers.Serializer[Any]):
    date = serializers.DateField(required=False, help_text="A day (UTC), such as 2026-11-21. Default: today.")


class SearchQuerySerializer(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=SEARCHED, required=False)
    klass = serializers.CharField(required=False, trim_whitespace=False)
    queue = serializers.CharField(required=False, trim_whitespace=False)
    tag = serializers.CharField(
        required=False, trim_whitespace=False, help_text="Jobs with this tag. Other filters are ignored."
    )
    count = serializers.IntegerField(required=False, default=25, min_value=1, max_value=MOST)
    cursor = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=LONGEST_CURSOR,
        help_text="The cursor of the previous response.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that the cursor is an offset if a tag is given."""
        cursor = attrs["cursor"]
        if "tag" in attrs and cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= DIGITS):
            raise serializers.ValidationError({"cursor": ["Pass the cursor of the previous response for this tag."]})
        return attrs


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
    delay = StrictIntegerField(
        required=False, default=0, min_value=0, max_value=LONGEST_DELAY, help_text="Seconds before the job can run."
    )


class RetryGroupSerializer(KnownFieldsOnly):
    """Options for retrying the jobs of a group."""

    count = StrictIntegerField(required=False, default=MOST, min_value=1, max_value=MOST_RETRIED)
    delay = StrictIntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=LONGEST_DELAY,
        help_text="Seconds before the first job can run.",
    )
    spread = StrictIntegerField(
        required=False, default=0, min_value=0, max_value=LONGEST_DELAY, help_text="Seconds between two jobs."
    )


# --- responses --------------------------------------------------------------------------------------------------------


class QueueSerializer(serializers.Serializer[Any]):
    """The jobs of a queue by state."""

    name = serializers.CharField()
    waiting = serializers.IntegerField()
    running = serializers.IntegerField(help_text="Running jobs, not counting stalled ones.")
    stalled = serializers.IntegerField(help_text="Running jobs whose lock has expired.")
    scheduled = serializers.IntegerField()
    depends = serializers.IntegerField()
    recurring = serializers.IntegerField()
    paused = serializers.BooleanField()


class QueuesSerializer(serializers.Serializer[Any]):
    queues = QueueSerializer(many=True)


class SeriesSerializer(serializers.Serializer[Any]):
    """Durations in seconds."""

    count = serializers.IntegerField()
    mean = serializers.FloatField()
    std = serializers.FloatField()
    histogram = serializers.ListField(
        child=serializers.FloatField(), help_text="Jobs of 0 to 59 s, 1 to 59 minutes, 1 to 23 hours, 1 to 6 days."
    )


class QueueStatsSerializer(serializers.Serializer[Any]):
    """A queue on one day (UTC)."""

    retries = serializers.IntegerField()
    failures = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="How many of the failures are still failed.")
    wait = SeriesSerializer(help_text="Waiting times.")
    run = SeriesSerializer(help_text="Running times.")


class ThroughputSerializer(serializers.Serializer[Any]):
    """Jobs completed; the current minute, hour and day come last."""

    minutes = serializers.ListField(child=serializers.IntegerField(), help_text="The last 60 minutes.")
    hours = serializers.ListField(child=serializers.IntegerField(), help_text="The last 48 hours.")
    days = serializers.ListField(child=serializers.IntegerField(), help_text="The last 30 days.")


class JobSerializer(serializers.Serializer[Any]):
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


class JobsSerializer(serializers.Serializer[Any]):
    """A page of jobs."""

    total = serializers.IntegerField()
    jobs = JobSerializer(many=True)


class FoundSerializer(serializers.Serializer[Any]):
    """A page of search results."""

    jobs = JobSerializer(many=True)
    cursor = serializers.CharField(allow_blank=True, help_text="For the next request; empty at the end.")


class GroupSerializer(serializers.Serializer[Any]):
    group = serializers.CharField()
    count = serializers.IntegerField()


class GroupsSerializer(serializers.Serializer[Any]):
    """Failed jobs by group, the largest first."""

    groups = GroupSerializer(many=True)


class WorkerSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    jobs = serializers.IntegerField(help_text="Number of jobs that it runs.")
    stalled = serializers.IntegerField()


class WorkersSerializer(serializers.Serializer[Any]):
    workers = WorkerSerializer(many=True)


class WorkerJobsSerializer(serializers.Serializer[Any]):
    """The jids of a worker's jobs."""

    name = serializers.CharField()
    jobs = serializers.ListField(child=serializers.CharField())
    stalled = serializers.ListField(child=serializers.CharField())


class RecurringJobSerializer(serializers.Serializer[Any]):
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


class RecurringJobsSerializer(serializers.Serializer[Any]):
    """Recurring jobs, sorted by queue, then by due time."""

    total = serializers.IntegerField()
    jobs = RecurringJobSerializer(many=True)


class JobGroupSerializer(serializers.Serializer[Any]):
    """A group of jobs. Times are seconds since the epoch."""

    id = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    state = serializers.ChoiceField(choices=("open", "running", "complete", "failed"))
    total = serializers.IntegerField(help_text="Number of members.")
    done = serializers.IntegerField()
    failed = serializers.IntegerField()
    skipped = serializers.IntegerField()
    canceled = serializers.IntegerField()
    left = serializers.IntegerField(help_text="Members that have not ended.")
    reason = serializers.CharField(allow_null=True, help_text="The jid of the member that failed first.")
    incomplete = serializers.BooleanField(help_text="Whether its client did not finish adding members.")
    created_at = serializers.FloatField()
    ended_at = serializers.FloatField(allow_null=True)


class JobGroupsSerializer(serializers.Serializer[Any]):
    """Groups of jobs, newest first."""

    total = serializers.IntegerField()
    groups = JobGroupSerializer(many=True)


class MemberSerializer(serializers.Serializer[Any]):
    jid = serializers.CharField()
    state = serializers.CharField(allow_null=True, help_text="Null if the job does not exist any more.")


class MembersSerializer(serializers.Serializer[Any]):
    """Members of a group, in the order in which they were put."""

    total = serializers.IntegerField()
    jobs = MemberSerializer(many=True)


class ConnectedSerializer(serializers.Serializer[Any]):
    jid = serializers.CharField()
    klass = serializers.CharField()
    state = serializers.CharField()
    queue = serializers.CharField(allow_blank=True)
    dependencies = serializers.ListField(child=serializers.CharField(), help_text="Jids of jobs and IDs of groups.")
    groups = serializers.ListField(child=serializers.CharField())
    blocked = serializers.CharField(
        allow_null=True, help_text="The failed job because of which this one failed without a run."
    )


class GraphSerializer(serializers.Serializer[Any]):
    """Connected jobs, and the groups through which they are connected."""

    jobs = ConnectedSerializer(many=True)
    groups = JobGroupSerializer(many=True)


class StuckJobSerializer(serializers.Serializer[Any]):
    jid = serializers.CharField()
    queue = serializers.CharField()
    other = serializers.CharField(allow_null=True, help_text="The job for which it waits.")
    reason = serializers.ChoiceField(choices=("failed", "gone", "complete", "itself", "nothing"))


class StuckSerializer(serializers.Serializer[Any]):
    """A page of stuck jobs."""

    jobs = StuckJobSerializer(many=True)
    cursor = serializers.CharField(allow_blank=True, help_text="For the next request; empty at the end.")


class CountSerializer(serializers.Serializer[Any]):
    """The number of changed jobs."""

    count = serializers.IntegerField()


class DoneSerializer(serializers.Serializer[Any]):
    """The changed jobs."""

    jids = serializers.ListField(child=serializers.CharField(), help_text="Jids of the changed jobs.")
