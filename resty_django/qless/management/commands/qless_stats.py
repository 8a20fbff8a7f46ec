"""`manage.py qless_stats`: queues, failures and workers of the job queue, for a terminal and for monitoring."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.redis.errors import StoreError
from resty_django.text import one_line

from ...clients.default import default_client
from ...clients.statistics import STATES, JobStatistics, QueueStatistics, collect_statistics
from ...errors import QlessError
from ..tables import lines

EXIT_LIMIT: Final = 1
EXIT_DOWN: Final = 2
CLEAR: Final = "\033[H\033[2J"
HEADS: Final = (*STATES, "failures", "retries", "per minute", "latency s", "wait s", "run s", "state")


class Command(BaseCommand):
    help = (
        "Show the state of queues, failed jobs and workers. Exit code: 0; 1 if a threshold is exceeded or a --queue "
        "does not exist; 2 if the server does not answer."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", action="append", default=[], help="Show only this queue. May be repeated.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of tables.")
        parser.add_argument("--watch", type=float, metavar="S", help="Repeat every S seconds.")
        for state in ("waiting", "stalled", "scheduled"):
            parser.add_argument(
                f"--max-{state}", type=int, metavar="N", help=f"Maximum number of {state} jobs in a queue."
            )
        parser.add_argument("--max-failed", type=int, metavar="N", help="Maximum number of failed jobs in all groups.")
        parser.add_argument(
            "--max-wait", type=float, metavar="S", help="Maximum mean wait of a queue today, in seconds."
        )
        parser.add_argument(
            "--max-latency", type=float, metavar="S", help="Maximum age of the oldest runnable job, in seconds."
        )
        parser.add_argument("--min-workers", type=int, metavar="N", help="Minimum number of workers.")

    def handle(self, *args: Any, **options: Any) -> None:
        watch: float | None = options["watch"]
        if watch is None:
            self._once(options)
            return
        if watch <= 0:
            raise CommandError("--watch needs a number of seconds greater than 0.")
        try:
            while True:
                if not options["json"] and self.stdout.isatty():
                    self.stdout.write(CLEAR, ending="")
                try:
                    self._once(options)
                except CommandError as error:
                    self.stderr.write(self.style.ERROR(str(error)))
                time.sleep(watch)
        except KeyboardInterrupt:
            self.stdout.write("")

    def _once(self, options: dict[str, Any]) -> None:
        try:
            snapshot = collect_statistics(default_client(), options["queue"])
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=EXIT_DOWN) from error
        except (StoreError, QlessError) as error:
            raise CommandError(f"The job queue does not answer: {one_line(error)}", returncode=EXIT_DOWN) from error
        missing = sorted(set(options["queue"]) - {queue.name for queue in snapshot.queues})
        exceeded = [f"The queue {name} does not exist." for name in missing] + limits_exceeded(snapshot, options)
        if options["json"]:
            self.stdout.write(json.dumps(as_json(snapshot, exceeded), ensure_ascii=True))
        else:
            self._tables(snapshot)
        if exceeded:
            raise CommandError(one_line(" ".join(exceeded), 10_000), returncode=EXIT_LIMIT)

    def _tables(self, snapshot: JobStatistics) -> None:
        self._table(("queue", *HEADS), [_row(queue) for queue in snapshot.queues], "No queues yet.")
        groups = [(group, f"{count:,}") for group, count in snapshot.failed.items()]
        self._table(("failed group", "jobs"), groups, "No failed jobs.")
        states = snapshot.states
        workers = [
            (worker.name, states.get(worker.name, ""), f"{worker.jobs:,}", f"{worker.stalled:,}")
            for worker in snapshot.workers
        ]
        self._table(("worker", "state", "running", "stalled"), workers, "No workers.")

    def _table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
        if not rows:
            self.stdout.write(empty)
            return
        head, *body = lines(heads, rows)
        for line in (self.style.MIGRATE_HEADING(head), *body, ""):
            self.stdout.write(line)


def limits_exceeded(snapshot: JobStatistics, options: dict[str, Any]) -> list[str]:
    """Return a sentence for each threshold that is exceeded."""
    sentences = []
    for queue in snapshot.queues:
        for state in ("waiting", "stalled", "scheduled"):
            most, count = options[f"max_{state}"], getattr(queue.counts, state)
            if most is not None and count > most:
                sentences.append(f"The queue {queue.name} has {count} {state} jobs, more than {most}.")
        oldest = options["max_latency"]
        if oldest is not None and not queue.counts.paused and (queue.latency or 0) > oldest:
            sentences.append(
                f"The oldest runnable job of the queue {queue.name} is {queue.latency:.1f} s old, "
                f"more than {oldest:g} s."
            )
        longest = options["max_wait"]
        if longest is not None and queue.stats is not None and queue.stats.wait.mean > longest:
            sentences.append(
                f"Jobs of the queue {queue.name} waited {queue.stats.wait.mean:.1f} s, more than {longest:g} s."
            )
    failed = sum(snapshot.failed.values())
    if options["max_failed"] is not None and failed > options["max_failed"]:
        sentences.append(f"{failed} jobs have failed, more than {options['max_failed']}.")
    if options["min_workers"] is not None and snapshot.alive < options["min_workers"]:
        sentences.append(f"There are {snapshot.alive} workers, fewer than {options['min_workers']}.")
    return sentences


def as_json(snapshot: JobStatistics, exceeded: list[str]) -> dict[str, Any]:
    """Return the figures as JSON-serialisable objects."""
    return {
        "queues": [
            {
                "name": queue.name,
                "paused": queue.counts.paused,
                **{state: getattr(queue.counts, state) for state in STATES},
                "failures": queue.stats.failures if queue.stats else None,
                "retries": queue.stats.retries if queue.stats else None,
                "per_minute": queue.per_minute,
                "latency": queue.latency,
                "wait": _series(queue, "wait"),
                "run": _series(queue, "run"),
            }
            for queue in snapshot.queues
        ],
        "failed": snapshot.failed,
        "workers": [
            {
                "name": worker.name,
                "state": snapshot.states.get(worker.name),
                "running": worker.jobs,
                "stalled": worker.stalled,
            }
            for worker in snapshot.workers
        ],
        "exceeded": exceeded,
    }


def _series(queue: QueueStatistics, kind: str) -> dict[str, float] | None:
    series = getattr(queue.stats, kind, None)
    return None if series is None else {"count": series.count, "mean": series.mean, "std": series.std}


def _row(queue: QueueStatistics) -> list[str]:
    stats = queue.stats
    return [
        queue.name,
        *(f"{getattr(queue.counts, state):,}" for state in STATES),
        *(("", "") if stats is None else (f"{stats.failures:,}", f"{stats.retries:,}")),
        f"{queue.per_minute:,.1f}",
        "" if queue.latency is None else f"{queue.latency:,.1f}",
        *(("", "") if stats is None else (f"{stats.wait.mean:,.1f}", f"{stats.run.mean:,.1f}")),
        "paused" if queue.counts.paused else "open",
    ]
