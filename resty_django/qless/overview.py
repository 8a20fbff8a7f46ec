"""The job queue in the overview and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.conf import conf, raw_section
from resty_django.extras import MissingExtra
from resty_django.health import Level
from resty_django.metrics import Family, Sample, family
from resty_django.overview import Figure, Tile, TileRow
from resty_django.text import printable

if TYPE_CHECKING:
    from .clients.client import Client
    from .clients.replies import QueueStats
    from .coverage import UnservedWork
    from .facts import QueueFacts, QueuePause


def _client() -> Client:
    from .clients.default import default_client

    return default_client()


def panel() -> Tile:
    """Return jobs by state, failures, workers and throughput.

    Without redis-py on a site that has not configured jobs, the panel says what to install.
    """
    from .coverage import unserved_work
    from .facts import job_queue_facts

    try:
        client = _client()
        now = job_queue_facts(client)
    except MissingExtra as error:
        if raw_section("QLESS"):
            raise
        return Tile(notes=[str(error)])
    unserved = unserved_work(client, now.counts, now.worker_lives)
    if not now.queues and not now.failed:
        first = _("No job yet. Start manage.py runqless, and start a job with the task’s delay().")
        return Tile(notes=[first, *notes_of(unserved)])
    waiting, failed = now.total("waiting"), sum(now.failed.values())
    ranked = sorted(now.queues, key=lambda queue: (-queue.counts.stalled, -queue.counts.waiting, queue.name))
    paused = [queue for queue in ranked if queue.pause]
    late, time = conf.qless.max_pause, client.clock()
    pauses = [
        f"{queue.name}: {pause_text(queue.pause, queue.counts.waiting, queue.latency)}"
        for queue in paused[:3]
        if queue.pause
    ]
    failures = "resty_qless_failuregroup_changelist"
    worker_level: Level = "warning" if waiting and not now.alive else "ok"
    return overview.tile(
        [
            Figure("waiting", _("Waiting"), waiting, page="resty_qless_job_changelist?state=waiting"),
            Figure("running", _("Running"), now.total("running"), page="resty_qless_job_changelist?state=running"),
            Figure("failed", _("Failed"), failed, level="warning" if failed else "ok", page=failures),
            Figure("workers", _("Workers"), now.alive, level=worker_level, page="resty_qless_worker_changelist"),
            Figure(
                "latency",
                _("Latency"),
                now.latency,
                "seconds",
                level="warning" if any(queue.is_paused_longer_than(late, time) for queue in paused) else "ok",
                note="; ".join(pauses) + ("; …" if len(paused) > 3 else ""),
            ),
            Figure("per_minute", _("Completed per minute"), sum(queue.per_minute for queue in ranked), "per minute"),
        ],
        [
            TileRow(
                queue.name, _figures(queue, queue.name not in unserved.queues), query=urlencode({"name": queue.name})
            )
            for queue in ranked
        ],
        bars=now.minutes,
        bars_label=_("Jobs completed per minute in the last hour"),
        notes=notes_of(unserved),
    )


def pause_text(pause: QueuePause, waiting: int, latency: float | None) -> str:
    """Return the text in place of a paused queue's latency: "paused since 12:40 by ann, 88 waiting, oldest 2 min"."""
    from resty_django.admin.formatting import date_time, duration, local_time, number

    parts = [_("paused")]
    if pause.since is not None:
        local = local_time(pause.since)
        is_today = local.date() == timezone.localdate()
        values = {"time": f"{local:%H:%M}" if is_today else date_time(local), "user": printable(pause.by, 60)}
        parts = [(_("paused since %(time)s by %(user)s") if pause.by else _("paused since %(time)s")) % values]
    if waiting:
        parts.append(_("%(count)s waiting") % {"count": number(waiting)})
    if latency is not None:
        parts.append(_("oldest %(time)s") % {"time": duration(latency)})
    return ", ".join(parts)


def _figures(queue: QueueFacts, served: bool) -> list[Figure]:
    counts = queue.counts
    return [
        Figure("waiting", _("Waiting"), counts.waiting, level="ok" if served else "warning"),
        Figure("running", _("Running"), counts.running),
        Figure("stalled", _("Stalled"), counts.stalled, level="warning" if counts.stalled else "ok"),
        Figure("scheduled", _("Scheduled"), counts.scheduled),
        Figure("per_minute", _("Per minute"), queue.per_minute, "per minute"),
    ]


def notes_of(unserved: UnservedWork) -> list[str]:
    """Return sentences about work that no worker does."""
    gaps = [
        (_("Queues with waiting jobs but no worker: %(names)s."), unserved.queues),
        (_("Periodic tasks whose queue has no worker: %(names)s."), [path for path, _queue in unserved.periodic]),
        (_("Tasks in modules that workers do not run: %(names)s."), unserved.refused),
    ]
    return [text % {"names": _some(names)} for text, names in gaps if names]


def _some(names: Sequence[str]) -> str:
    return ", ".join(printable(name, 100) for name in names[:10]) + (", ..." if len(names) > 10 else "")


def families() -> Iterator[Family]:
    """Yield the metrics of the job queue; none without redis-py on a site that has not configured jobs."""
    from .clients.replies import QUEUE_STATES
    from .facts import job_queue_facts

    try:
        now = job_queue_facts(_client(), of_today=True)
    except MissingExtra:
        if raw_section("QLESS"):
            raise
        return
    queues = now.queues
    text = "Jobs by queue and state. Stalled jobs are running, but their lock has expired."
    counts = (((queue.name, state), getattr(queue.counts, state)) for queue in queues for state in QUEUE_STATES)
    yield family("resty_jobs", "gauge", text, "queue state", counts)
    paused = ((queue.name, queue.counts.paused) for queue in queues)
    yield family("resty_jobs_queue_paused", "gauge", "Whether a queue is paused.", "queue", paused)
    text = "When a queue was paused, in seconds since the epoch, if it is known."
    since = ((queue.name, queue.pause.since) for queue in queues if queue.pause and queue.pause.since)
    yield family("resty_jobs_queue_paused_since_seconds", "gauge", text, "queue", since)
    text = "Age of the oldest runnable job of a queue, 0 without such a job."
    latencies = ((queue.name, queue.latency or 0.0) for queue in queues if queue.stats)
    yield family("resty_jobs_latency_seconds", "gauge", text, "queue", latencies)
    text = "Failed jobs to be retried or canceled, by group."
    yield family("resty_jobs_failed", "gauge", text, "group", now.failed.items())
    yield family("resty_jobs_workers", "gauge", "Workers that are not silent or gone.", values=now.alive)
    text = "Workers that have stopped reporting while they hold jobs."
    yield family("resty_jobs_silent_workers", "gauge", text, values=now.silent_with_jobs)
    minute = ((queue.name, queue.minutes[-2]) for queue in queues if queue.minutes)
    yield family(
        "resty_jobs_completed_last_minute", "gauge", "Jobs completed in the last full minute.", "queue", minute
    )
    if conf.qless.archive.enabled:
        yield from _of_archive()
    yield from _of_today({queue.name: queue.stats for queue in queues if queue.stats})


def _of_archive() -> Iterator[Family]:
    from .archive.marks import status

    archive = status(_client())
    text = "Age of the oldest complete job that is not archived yet, 0 without one."
    yield family("resty_jobs_archive_lag_seconds", "gauge", text, values=archive.lag)
    text = "Complete jobs that are not archived yet."
    yield family("resty_jobs_archive_behind", "gauge", text, values=archive.behind)
    yield family("resty_jobs_archive_written", "counter", "Rows written to the archive.", values=archive.written)
    text = "Jobs that were deleted before they were archived."
    yield family("resty_jobs_archive_lost", "counter", text, values=archive.lost)


def _of_today(stats_by_queue: dict[str, QueueStats]) -> Iterator[Family]:
    """Yield the metrics of today. Like counters after a restart, they begin at 0 at midnight (UTC)."""
    for kind, text in (("wait", "Seconds that jobs waited until they were popped"), ("run", "Seconds that jobs ran")):
        series = ((name, getattr(stats, kind)) for name, stats in stats_by_queue.items())
        samples = [Sample((name,), times.mean * times.count, times.count) for name, times in series]
        yield Family(f"resty_jobs_{kind}_seconds", "summary", f"{text}, today (UTC).", ("queue",), samples)
    for event in ("failures", "retries"):
        counts = ((name, getattr(stats, event)) for name, stats in stats_by_queue.items())
        yield family(f"resty_jobs_{event}", "counter", f"{event.capitalize()} of today (UTC).", "queue", counts)
