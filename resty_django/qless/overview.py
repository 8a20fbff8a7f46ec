"""What the overview and the metrics tell of the job queue."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django import metrics, overview
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Panel, Row, Tile

from .default import default_client
from .figures import STATES, JobFigures, QueueFigures, figures


def panel() -> Tile:
    """Jobs by state, failures, workers and throughput."""
    found = figures(default_client())
    failed = sum(found.failed.values())
    ranked = sorted(found.queues, key=lambda queue: (-queue.counts.stalled, -queue.counts.waiting, queue.name))
    return overview.tile(
        [
            Figure("waiting", _("Waiting"), found.total("waiting")),
            Figure("running", _("Running"), found.total("running")),
            Figure("failed", _("Failed"), failed, level="warning" if failed else "ok"),
            Figure("workers", _("Workers"), len(found.workers)),
            Figure("per_minute", _("Completed a minute"), sum(queue.per_minute for queue in ranked), "per minute"),
        ],
        [Row(queue.name, _figures(queue)) for queue in ranked],
        bars=found.minutes,
        bars_label=_("Jobs completed by minute, the last hour"),
        notes=_notes(found),
    )


def _figures(queue: QueueFigures) -> list[Figure]:
    counts = queue.counts
    return [
        Figure("waiting", _("Waiting"), counts.waiting),
        Figure("running", _("Running"), counts.running),
        Figure("stalled", _("Stalled"), counts.stalled, level="warning" if counts.stalled else "ok"),
        Figure("scheduled", _("Scheduled"), counts.scheduled),
        Figure("per_minute", _("A minute"), queue.per_minute, "per minute"),
    ]


def _notes(found: JobFigures) -> list[str]:
    paused = [queue.name for queue in found.queues if queue.counts.paused]
    return [_("Paused: %(names)s.") % {"names": ", ".join(paused[:10])}] if paused else []


def families() -> Iterator[Family]:
    """The metrics of the job queue."""
    found = figures(default_client())
    queues = found.queues
    yield Family(
        "resty_jobs",
        "gauge",
        "Jobs by queue and state; stalled ones are running, but their lock has expired.",
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
        "resty_jobs_failed",
        "gauge",
        "Failed jobs that wait for somebody, by group.",
        ("group",),
        [Sample((group,), count) for group, count in found.failed.items()],
    )
    yield Family("resty_jobs_workers", "gauge", "Workers.", (), [Sample((), len(found.workers))])
    yield Family(
        "resty_jobs_completed_last_minute",
        "gauge",
        "Jobs completed in the last minute that is over.",
        ("queue",),
        [Sample((queue.name,), queue.minutes[-2]) for queue in queues if queue.minutes],
    )
    yield from _of_today([queue for queue in queues if queue.stats is not None])


def _of_today(queues: list[QueueFigures]) -> Iterator[Family]:
    """The server keeps statistics by day, so these begin at 0 each midnight (UTC), as counters may."""
    for kind, text in (("wait", "Seconds that jobs waited until they were popped"), ("run", "Seconds that jobs ran")):
        samples = []
        for queue in queues:
            series = getattr(queue.stats, kind)
            samples.append(Sample((queue.name,), series.mean * series.count, series.count))
        yield Family(f"resty_jobs_{kind}_seconds", "summary", f"{text}, today (UTC).", ("queue",), samples)
    for name in ("failures", "retries"):
        samples = [Sample((queue.name,), getattr(queue.stats, name)) for queue in queues]
        yield Family(f"resty_jobs_{name}", "counter", f"{name.capitalize()} of today (UTC).", ("queue",), samples)


def register() -> None:
    """Register the panel `jobs` and the metrics."""
    app = "resty_django.qless"
    overview.register(
        Panel(
            "jobs",
            gettext_lazy("Jobs"),
            panel,
            permissions=("resty_qless.view_job",),
            page="resty_qless_queue_changelist",
            app=app,
            order=40,
        )
    )
    metrics.register("jobs", families, app=app)


__all__ = ["families", "panel", "register"]
