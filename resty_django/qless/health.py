"""Health of the job queue, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import conf, raw_section
from resty_django.health import Finding
from resty_django.redis.errors import StoreError
from resty_django.text import printable

if TYPE_CHECKING:
    from resty_django.redis.servers import ServerInfo

    from .archive.marks import ArchiveStatus
    from .clients.client import Client
    from .clients.figures import FailuresBetween
    from .clients.replies import QueueCounts, StuckJob
    from .clients.worker_reports import WorkerReport
    from .coverage import UnservedWork
    from .facts import JobQueueFacts, QueueFacts
    from .retention import RetentionStatus
    from .tasks.abandoned import Declared

MAX_JOBS_NAMED: Final = 5
"""Maximum number of jobs that one finding names."""
MAX_MEMORY_SHARE: Final = 0.8
"""Used share of the server's memory above which a warning is reported."""
MAX_STUCK_CALLS: Final = 50
"""Maximum number of calls that search for stuck jobs. Each examines at most 100 jobs."""


def probe() -> Iterator[Finding]:
    """Report whether the server answers, its version, and whether it persists the jobs.

    Warns of stalled jobs, jobs that wait in a queue without a worker or for the end of a long pause, stuck jobs,
    periodic tasks in queues without a worker, tasks that workers refuse, recurring jobs of deleted tasks, an archive
    that is late, a server whose memory is nearly full, failed jobs that are too many or are no longer deleted, and jobs
    that have failed recently.
    """
    from .clients.default import default_client

    try:
        client = default_client()
        client.source.sync()
    except ImproperlyConfigured as error:
        if raw_section("QLESS"):
            yield Finding("error", "jobs", f"The job queue cannot be used: {error}")
        else:
            yield Finding("ok", "jobs", f"No job queue is configured: {error}")
        return
    try:
        seen = _observe(client)
    except StoreError as error:
        yield Finding("error", "jobs", f"The server of the job queue cannot be used: {error}")
        return
    yield _server_finding(seen)
    for queue in seen.now.queues:
        yield _queue_finding(queue, seen)
    yield from _stuck_job_findings(seen)
    yield from _task_findings(seen.unserved)
    yield from _worker_findings(seen)
    for recurring in seen.abandoned:
        text = f"No task declares it any more, but it creates jobs: {recurring.fault}. See manage.py qless_recurring."
        yield Finding("warning", f"recurring {recurring.job.jid}", text)
    if seen.archive is not None:
        yield _archive_finding(seen.archive)
    if seen.retention.too_many or seen.retention.stopped:
        yield _retention_finding(seen.retention)
    yield from _failure_findings(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observation:
    """The state of the job queue that the checks examine.

    `clock`: the time in epoch seconds. `stuck`: jobs that wait for something that will not end, found among the first
    `examined` waiting ones. `recent_failures`: by group. `archive`: None if the site has none. `retention`: of failed
    jobs.
    """

    clock: float
    now: JobQueueFacts
    server: ServerInfo
    unserved: UnservedWork
    reports: Sequence[WorkerReport]
    abandoned: Sequence[Declared]
    stuck: Sequence[StuckJob]
    examined: int
    recent_failures: Mapping[str, FailuresBetween]
    archive: ArchiveStatus | None
    retention: RetentionStatus


def _observe(client: Client) -> _Observation:
    """Raises `StoreError`."""
    from resty_django.redis.servers import server_info

    from . import retention
    from .archive.marks import status
    from .clients.figures import failures_between
    from .coverage import unserved_work
    from .facts import job_queue_facts
    from .tasks.abandoned import of_tasks

    now, clock = job_queue_facts(client, detailed=None), client.clock()
    stuck, examined = _stuck_jobs(client, now.counts)
    max_groups = 50
    since = clock - conf.qless.failed_window
    return _Observation(
        clock=clock,
        now=now,
        server=server_info(client.source.sync(), client.prefix),
        unserved=unserved_work(client, now.counts, now.worker_lives),
        reports=client.workers.reports(*(worker.name for worker in now.worker_lives)) if now.worker_lives else [],
        abandoned=[recurring for recurring in of_tasks(client) if recurring.abandoned],
        stuck=stuck,
        examined=examined,
        recent_failures=failures_between(client, list(now.failed)[:max_groups], since, 1e12, most=max_groups),
        archive=status(client) if conf.qless.archive.enabled else None,
        retention=retention.status(client, now.failed),
    )


def _server_finding(seen: _Observation) -> Finding:
    server, now = seen.server, seen.now
    text = f"{server.name} {server.version} answers in {now.seconds * 1000:.1f} ms; {len(now.queues)} queues."
    if server.keeps is False:
        text += " Persistence is off, so jobs are lost when the server stops. Set appendonly yes."
    is_full = (server.memory_share or 0.0) > MAX_MEMORY_SHARE
    if is_full:
        text += (
            f" It uses {server.memory_share:.0%} of maxmemory, and refuses jobs when that is full. Raise maxmemory, or "
            "lower RETENTION."
        )
    return Finding("warning" if server.keeps is False or is_full else "ok", "jobs", text)


def _queue_finding(queue: QueueFacts, seen: _Observation) -> Finding:
    counts = queue.counts
    text = f"{counts.waiting:,} waiting, {counts.running:,} running, {counts.scheduled:,} scheduled jobs."
    if counts.stalled:
        text += f" Expired locks: {counts.stalled:,}. The workers are gone, or do not send heartbeats."
    is_unserved = queue.name in seen.unserved.queues
    if is_unserved:
        text += f" No worker serves this queue. Start one with manage.py runqless --queues {queue.name}."
    max_latency = conf.qless.max_latency
    is_late = max_latency is not None and not counts.paused and (queue.latency or 0) > max_latency
    if is_late:
        text += f" The oldest runnable job has waited for {queue.latency:,.0f} s. Start more workers."
    pause, paused_too_long = queue.pause, queue.is_paused_longer_than(conf.qless.max_pause, seen.clock)
    if pause is not None:
        seconds = f" for {seen.clock - pause.since:,.0f} s" if pause.since else ""
        by = f" by {printable(pause.by, 60)}" if pause.by else ""
        text += f" Paused{seconds}{by}.{' Its jobs wait until somebody resumes it.' if paused_too_long else ''}"
    warns = counts.stalled or is_unserved or is_late or paused_too_long
    return Finding("warning" if warns else "ok", f"queue {queue.name}", text)


def _stuck_job_findings(seen: _Observation) -> Iterator[Finding]:
    if not seen.stuck:
        return
    waiting = seen.now.total("depends")
    most = "" if seen.examined >= waiting else f" Examined {seen.examined:,} of {waiting:,} jobs that wait for others."
    names = ", ".join(f"{job.jid} in {job.queue} ({job.reason})" for job in seen.stuck[:MAX_JOBS_NAMED])
    more = ", ..." if seen.stuck[MAX_JOBS_NAMED:] else ""
    text = f"{len(seen.stuck):,} wait for something that will not end: {names}{more}.{most}"
    yield Finding("warning", "stuck jobs", f'{text} See "Stuck jobs" in the admin of the job queue.')


def _task_findings(unserved: UnservedWork) -> Iterator[Finding]:
    from .checks import REFUSALS
    from .job_classes import refusal_of

    for path, queue in unserved.periodic:
        text = f"No worker serves its queue, so it is not scheduled. Start manage.py runqless --queues {queue}."
        yield Finding("warning", f"periodic task {path}", text)
    for path in unserved.refused:
        yield Finding("warning", f"task {path}", f"Workers do not run it. {refusal_of(path)}")
    for name, fault in unserved.faults:
        text = f"Workers cannot use it. {type(fault).__name__}: {fault}"
        yield Finding("error" if isinstance(fault, REFUSALS) else "warning", f"task {name}", text)


def _worker_findings(seen: _Observation) -> Iterator[Finding]:
    lives = seen.now.worker_lives
    silent = [worker.name for worker in lives if worker.state != "alive"]
    if silent:
        text = f"{len(silent)} of {len(lives)} have stopped reporting: {', '.join(silent[:10])}."
        yield Finding("warning", "workers", text)
    late = [
        f"{job.klass} for {job.seconds + report.age:,.0f} s on {report.name}"
        for report in seen.reports
        if (job := report.late_job) is not None
    ]
    if late:
        jobs = "; ".join(late[:MAX_JOBS_NAMED])
        text = f"{len(late)} workers run a job for much longer than usual: {jobs}. See manage.py qless_workers."
        yield Finding("warning", "late jobs", text)


def _failure_findings(seen: _Observation) -> Iterator[Finding]:
    least = conf.qless.failed_warning
    for group, count in sorted(seen.now.failed.items()):
        new = seen.recent_failures[group].count if group in seen.recent_failures else 0
        text = f"{count:,} jobs."
        if new:
            text += f" {new:,} of them in the last {conf.qless.failed_window / 60:g} minutes."
        yield Finding("warning" if least and new >= least else "ok", f"failed {group}", text)


def _retention_finding(retention: RetentionStatus) -> Finding:
    texts = []
    if retention.too_many:
        texts.append(f"{retention.surplus:,} more failed jobs are stored than FAILED_COUNT of RETENTION allows.")
    if retention.stopped:
        texts.append(f"The last pass that deletes old jobs ended {retention.silent / 3600:,.0f} h ago.")
    texts.append("Workers delete them: start manage.py runqless, or see the log resty_django.qless.retention.")
    return Finding("warning", "failed jobs", " ".join(texts))


def _archive_finding(archive: ArchiveStatus) -> Finding:
    """Report how far the archive is behind, and what Redis deleted before it was archived."""
    texts = [f"{archive.written:,} jobs written; {archive.behind:,} complete jobs are not archived yet."]
    if archive.stopped:
        texts.append("No process writes it. Start manage.py runqless, or run manage.py qless_archive regularly.")
    if archive.late:
        texts.append(
            f"The oldest one ended {archive.lag:,.0f} s ago, and Redis keeps {archive.keeps:,.0f} s and "
            f"{archive.kept:,} jobs. Run manage.py qless_archive, or raise jobs-history and jobs-history-count."
        )
    if archive.lost:
        texts.append(f"{archive.lost:,} jobs were deleted before they were archived.")
    if archive.skipped:
        texts.append(f"{archive.skipped:,} jobs could not be stored; see the log resty_django.qless.archive.")
    warns = archive.stopped or archive.late or archive.loses
    return Finding("warning" if warns else "ok", "job archive", " ".join(texts))


def _stuck_jobs(client: Client, queues: list[QueueCounts]) -> tuple[list[StuckJob], int]:
    """Return jobs that wait for something that will not end, and the number of jobs examined: the first ones of each
    queue first."""
    stuck: list[StuckJob] = []
    examined, calls_left = 0, MAX_STUCK_CALLS
    cursors = {queue.name: "" for queue in queues if queue.depends}
    while cursors and calls_left:
        for name, cursor in list(cursors.items())[:calls_left]:
            page = client.queues[name].stuck(cursor)
            stuck += page.jobs
            calls_left -= 1
            if page.cursor:
                examined += int(page.cursor) - int(cursor or 0)
                cursors[name] = page.cursor
            else:
                depends = next(queue.depends for queue in queues if queue.name == name)
                examined += max(0, depends - int(cursor or 0))
                del cursors[name]
    return stuck, examined
