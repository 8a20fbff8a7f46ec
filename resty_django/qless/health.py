"""Health of the job queue, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import conf, raw_section
from resty_django.health import Finding
from resty_django.redis.errors import StoreError
from resty_django.text import printable

if TYPE_CHECKING:
    from .archive.marks import ArchiveStatus
    from .clients.client import Client
    from .clients.replies import QueueCounts, StuckJob

MOST_GROUPS: Final = 50
MOST_CALLS: Final = 50
"""Calls, each of which examines at most 100 jobs, that search for stuck jobs."""
MOST_NAMED: Final = 5
"""Stuck jobs that are named."""


def probe() -> Iterator[Finding]:
    """Report whether the server answers, its version, and whether it persists the jobs.

    Warns of stalled jobs, jobs that wait in a queue without a worker or for the end of a long pause, stuck jobs,
    periodic tasks in queues without a worker, tasks that workers refuse, recurring jobs of deleted tasks, an archive
    that is late, and jobs that have failed recently.
    """
    from .archive.marks import status
    from .checks import REFUSALS
    from .clients.default import default_client
    from .clients.figures import failures_between
    from .coverage import coverage
    from .facts import facts
    from .job_classes import refusal_of
    from .tasks.abandoned import of_tasks

    try:
        client = default_client()
        redis = client.source.sync()
    except ImproperlyConfigured as error:
        if raw_section("QLESS"):
            yield Finding("error", "jobs", f"The job queue cannot be used: {error}")
        else:
            yield Finding("ok", "jobs", f"No job queue is configured: {error}")
        return
    from resty_django.redis.servers import server_info

    try:
        now = facts(client, detailed=None)
        abandoned = [recurring for recurring in of_tasks(client) if recurring.abandoned]
        unserved = coverage(client, now.counts, now.life)
        reports = client.workers.reports(*(worker.name for worker in now.life)) if now.life else []
        clock = client.clock()
        since = clock - conf.qless.failed_window
        stuck, examined = _stuck_jobs(client, now.counts)
        recent = failures_between(client, list(now.failed)[:MOST_GROUPS], since, 1e12, most=MOST_GROUPS)
        server = server_info(redis, client.prefix)
        archive = status(client) if conf.qless.archive.enabled else None
    except StoreError as error:
        yield Finding("error", "jobs", f"The server of the job queue cannot be used: {error}")
        return
    text = f"{server.name} {server.version} answers in {now.seconds * 1000:.1f} ms; {len(now.queues)} queues."
    if server.keeps is False:
        text += " Persistence is off, so jobs are lost when the server stops. Set appendonly yes."
    yield Finding("warning" if server.keeps is False else "ok", "jobs", text)
    most_late = conf.qless.max_latency
    for queue, counts in zip(now.queues, now.counts, strict=True):
        text = f"{counts.waiting:,} waiting, {counts.running:,} running, {counts.scheduled:,} scheduled jobs."
        if counts.stalled:
            text += f" Expired locks: {counts.stalled:,}. The workers are gone, or do not send heartbeats."
        alone = queue.name in unserved.queues
        if alone:
            text += f" No worker serves this queue. Start one with manage.py runqless --queues {queue.name}."
        late = most_late is not None and not counts.paused and (queue.latency or 0) > most_late
        if late:
            text += f" The oldest runnable job has waited for {queue.latency:,.0f} s. Start more workers."
        pause, stopped = queue.pause, queue.is_paused_longer_than(conf.qless.max_pause, clock)
        if pause is not None:
            seconds = f" for {clock - pause.since:,.0f} s" if pause.since else ""
            by = f" by {printable(pause.by, 60)}" if pause.by else ""
            text += f" Paused{seconds}{by}.{' Its jobs wait until somebody resumes it.' if stopped else ''}"
        yield Finding("warning" if counts.stalled or alone or late or stopped else "ok", f"queue {queue.name}", text)
    if stuck:
        waiting = now.total("depends")
        most = "" if examined >= waiting else f" Examined {examined:,} of {waiting:,} jobs that wait for others."
        names = ", ".join(f"{job.jid} in {job.queue} ({job.reason})" for job in stuck[:MOST_NAMED])
        more = ", ..." if stuck[MOST_NAMED:] else ""
        text = f"{len(stuck):,} wait for something that will not end: {names}{more}.{most}"
        yield Finding("warning", "stuck jobs", f'{text} See "Stuck jobs" in the admin of the job queue.')
    for path, name in unserved.periodic:
        text = f"No worker serves its queue, so it is not scheduled. Start manage.py runqless --queues {name}."
        yield Finding("warning", f"periodic task {path}", text)
    for path in unserved.refused:
        text = f"Workers do not run it. {refusal_of(path)}"
        yield Finding("warning", f"task {path}", text)
    for name, fault in unserved.faults:
        text = f"Workers cannot use it. {type(fault).__name__}: {fault}"
        yield Finding("error" if isinstance(fault, REFUSALS) else "warning", f"task {name}", text)
    silent = [worker.name for worker in now.life if worker.state != "alive"]
    if silent:
        text = f"{len(silent)} of {len(now.life)} have stopped reporting: {', '.join(silent[:10])}."
        yield Finding("warning", "workers", text)
    late_jobs = [(report.name, job, report.age) for report in reports if (job := report.late_job) is not None]
    if late_jobs:
        jobs = "; ".join(
            f"{job.klass} for {job.seconds + age:,.0f} s on {name}" for name, job, age in late_jobs[:MOST_NAMED]
        )
        text = f"{len(late_jobs)} workers run a job for much longer than usual: {jobs}. See manage.py qless_workers."
        yield Finding("warning", "late jobs", text)
    for recurring in abandoned:
        text = f"No task declares it any more, but it creates jobs: {recurring.fault}. See manage.py qless_recurring."
        yield Finding("warning", f"recurring {recurring.job.jid}", text)
    if archive is not None:
        yield _archive_finding(archive)
    least = conf.qless.failed_warning
    for group, count in sorted(now.failed.items()):
        new = recent[group].count if group in recent else 0
        text = f"{count:,} jobs."
        if new:
            text += f" {new:,} of them in the last {conf.qless.failed_window / 60:g} minutes."
        yield Finding("warning" if least and new >= least else "ok", f"failed {group}", text)


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
    examined = calls = 0
    cursors = {queue.name: "" for queue in queues if queue.depends}
    while cursors and calls < MOST_CALLS:
        for name, cursor in list(cursors.items())[: MOST_CALLS - calls]:
            page = client.queues[name].stuck(cursor)
            stuck += page.jobs
            calls += 1
            if page.cursor:
                examined += int(page.cursor) - int(cursor or 0)
                cursors[name] = page.cursor
            else:
                depends = next(queue.depends for queue in queues if queue.name == name)
                examined += max(0, depends - int(cursor or 0))
                del cursors[name]
    return stuck, examined
