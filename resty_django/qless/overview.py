"""The job queue in the overview and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from django.utils.translation import gettext as _

from resty_django import overview
from resty_django.conf import conf, raw_section
from resty_django.extras import MissingExtra
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Row, Tile
from resty_django.text import printable

if TYPE_CHECKING:
    from .clients.client import Client
    from .clients.statistics import JobStatistics, QueueStatistics
    from .coverage import Coverage


def _client() -> Client:
    from .clients.default import default_client

    return default_client()


def panel() -> Tile:
    """Return jobs by state, failures, workers and throughput.

    Without redis-py on a site that has not configured jobs, the panel says what to install.
    """
    from .clients.statistics import collect_statistics
    from .coverage import coverage

    try:
        client = _client()
        statistics = collect_statistics(client, of_today=False)
    except MissingExtra as error:
        if raw_section("QLESS"):
            raise
        return Tile(notes=[str(error)])
    unserved = coverage(client, [queue.counts for queue in statistics.queues], statistics.life)
    waiting = statistics.total("waiting")
    failed = sum(statistics.failed.values())
    ranked = sorted(statistics.queues, key=lambda queue: (-queue.counts.stalled, -queue.counts.waiting, queue.name))
    return overview.tile(
        [
            Figure("waiting", _("Waiting"), waiting),
            Figure("running", _("Running"), statistics.total("running")),
            Figure("failed", _("Failed"), failed, level="warning" if failed else "ok"),
            Figure(
                "workers", _("Workers"), statistics.alive, level="warning" if waiting and not statistics.alive else "ok"
            ),
            Figure("latency", _("Latency"), statistics.latency, "seconds"),
            Figure("per_minute", _("Completed per minute"), sum(queue.per_minute for queue in ranked), "per minute"),
        ],
        [Row(queue.name, _figures(queue, queue.name not in unserved.queues)) for queue in ranked],
        bars=statistics.minutes,
        bars_label=_("Jobs completed per minute in the last hour"),
        notes=[*_notes(statistics), *notes_of(unserved)],
    )


def _figures(queue: QueueStatistics, served: bool) -> list[Figure]:
    counts = queue.counts
    return [
        Figure("waiting", _("Waiting"), counts.waiting, level="ok" if served else "warning"),
        Figure("running", _("Running"), counts.running),
        Figure("stalled", _("Stalled"), counts.stalled, level="warning" if counts.stalled else "ok"),
        Figure("scheduled", _("Scheduled"), counts.scheduled),
        Figure("per_minute", _("Per minute"), queue.per_minute, "per minute"),
    ]


def _notes(statistics: JobStatistics) -> list[str]:
    paused = [queue.name for queue in statistics.queues if queue.counts.paused]
    return [_("Paused: %(names)s.") % {"names": ", ".join(paused[:10])}] if paused else []


def notes_of(unserved: Coverage) -> list[str]:
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
    from .clients.statistics import STATES, collect_statistics

    try:
        statistics = collect_statistics(_client())
    except MissingExtra:
        if raw_section("QLESS"):
            raise
        return
    queues = statistics.queues
    yield Family(
        "resty_jobs",
        "gauge",
        "Jobs by queue and state. Stalled jobs are running, but their lock has expired.",
        ("queue", "state"),
        [Sample((queue.name, state), getattr(queue.counts, state)) for queue in queues for state in STATES],
    )
    yield Family(
        "resty_jobs_queue_paused",
        "gauge",
        "Whether a queue is paused.",
        ("queue",),
        [Sample((queue.name,), float(queue.counts.paused)) for queue in queues],
    )
    yield Family(
        "resty_jobs_latency_seconds",
        "gauge",
        "Age of the oldest runnable job of a queue, 0 without such a job.",
        ("queue",),
        [Sample((queue.name,), queue.latency or 0.0) for queue in queues if queue.stats is not None],
    )
    yield Family(
        "resty_jobs_failed",
        "gauge",
        "Failed jobs to be retried or canceled, by group.",
        ("group",),
        [Sample((group,), count) for group, count in statistics.failed.items()],
    )
    yield Family(
        "resty_jobs_workers", "gauge", "Workers that are not silent or gone.", (), [Sample((), statistics.alive)]
    )
    yield Family(
        "resty_jobs_silent_workers",
        "gauge",
        "Workers that have stopped reporting while they hold jobs.",
        (),
        [Sample((), statistics.silent_with_jobs)],
    )
    yield Family(
        "resty_jobs_completed_last_minute",
        "gauge",
        "Jobs completed in the last full minute.",
        ("queue",),
        [Sample((queue.name,), queue.minutes[-2]) for queue in queues if queue.minutes],
    )
    if conf.qless.archive.enabled:
        yield from _of_archive()
    yield from _of_today([queue for queue in queues if queue.stats is not None])


def _of_archive() -> Iterator[Family]:
    from .archive.marks import status

    archive = status(_client())
    figures: tuple[tuple[str, Literal["counter", "gauge"], str, float], ...] = (
        (
            "lag_seconds",
            "gauge",
            "Age of the oldest complete job that is not archived yet, 0 without one.",
            archive.lag,
        ),
        ("behind", "gauge", "Complete jobs that are not archived yet.", archive.behind),
        ("written", "counter", "Rows written to the archive.", archive.written),
        ("lost", "counter", "Jobs that were deleted before they were archived.", archive.lost),
    )
    for name, kind, text, value in figures:
        yield Family(f"resty_jobs_archive_{name}", kind, text, (), [Sample((), value)])


def _of_today(queues: list[QueueStatistics]) -> Iterator[Family]:
    """Yield the metrics of today. Like counters after a restart, they begin at 0 at midnight (UTC)."""
    for kind, text in (("wait", "Seconds that jobs waited until they were popped"), ("run", "Seconds that jobs ran")):
        samples = []
        for queue in queues:
            series = getattr(queue.stats, kind)
            samples.append(Sample((queue.name,), series.mean * series.count, series.count))
        yield Family(f"resty_jobs_{kind}_seconds", "summary", f"{text}, today (UTC).", ("queue",), samples)
    for name in ("failures", "retries"):
        samples = [Sample((queue.name,), getattr(queue.stats, name)) for queue in queues]
        yield Family(f"resty_jobs_{name}", "counter", f"{name.capitalize()} of today (UTC).", ("queue",), samples)
