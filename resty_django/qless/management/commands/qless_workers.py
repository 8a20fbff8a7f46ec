"""`manage.py qless_workers`: lists the workers, controls them, and shows the stacks of their jobs."""

from __future__ import annotations

import fnmatch
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.admin.formatting import duration
from resty_django.redis.errors import StoreError
from resty_django.text import one_line

from ...clients.client import Client
from ...clients.default import default_client
from ...clients.worker_reports import QUIET, RESUME, SCALE, STACKS, STOP, WorkerReport
from ...errors import QlessError
from .. import tables
from ..tables import EXIT_DOWN, named


class Command(BaseCommand):
    help = (
        "List the workers of manage.py runqless, or control them: each worker is one process. Names may contain "
        "wildcards, such as 'web1-*' for all processes of a host. The command waits until the workers have confirmed."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        # BaseCommand's parser class needs arguments that subparsers do not pass
        actions = parser.add_subparsers(dest="action", required=True, parser_class=ArgumentParser)
        actions.add_parser("list", help="List the workers with their state, slots and longest job.")
        for action, text in (
            (QUIET, "Let workers take no new jobs."),
            (RESUME, "Let quiet workers take jobs again."),
            (STOP, "Stop worker processes as SIGTERM does. They are not replaced."),
            (SCALE, "Set the number of jobs that workers run at once."),
            (STACKS, "Show where the running jobs of workers are in their code."),
        ):
            subparser = actions.add_parser(action, help=text, description=text)
            subparser.add_argument("names", nargs="+", metavar="name", help="Names of workers, with * and ?.")
            if action == SCALE:
                subparser.add_argument("--slots", type=int, required=True, help="Number of jobs at once.")
            # a worker that missed the announcement reports within 10 s
            subparser.add_argument(
                "--wait", type=float, default=15.0, help="Seconds to wait for the confirmation. Default: %(default)g."
            )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            client = default_client()
            if options["action"] == "list":
                self._list(client)
            else:
                self._control(client, options)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=EXIT_DOWN) from error
        except StoreError as error:
            raise CommandError(f"The job queue does not answer: {one_line(error)}", returncode=EXIT_DOWN) from error
        except QlessError as error:
            raise CommandError(one_line(error)) from error

    def _list(self, client: Client) -> None:
        lives = client.workers.alive()
        reports = {report.name: report for report in client.workers.reports(*(life.name for life in lives))}
        if not lives:
            self.stdout.write("No workers report.")
            return
        heads = ("worker", "state", "slots", "longest job", "uptime", "release", "last report")
        rows = []
        for life in lives:
            report = reports.get(life.name)
            facts = ("", "", "", "", "") if report is None else _facts(client, report)
            state, *others = facts
            state = ", ".join(filter(None, ("" if life.state == "alive" else life.state, state)))
            rows.append((named(life.name), state, *others, f"{duration(life.age)} ago"))
        tables.write(self, heads, rows)

    def _control(self, client: Client, options: dict[str, Any]) -> None:
        action, until = options["action"], time.monotonic() + options["wait"]
        names = _matching(client, options["names"])
        requests = {name: _send(client, action, name, options) for name in names}
        missing = _wait(client, action, requests, until)
        if action == STACKS:
            for name in names:
                if name not in missing:
                    self._show_stacks(client, name)
        else:
            for name in names:
                if name not in missing:
                    self.stdout.write(f"{named(name)}: {action} confirmed.")
        if missing:
            listed = ", ".join(map(named, missing))
            raise CommandError(f"Not confirmed within {options['wait']:g} s: {listed}. The request remains.")

    def _show_stacks(self, client: Client, name: str) -> None:
        answer = client.workers.stacks(name)
        self.stdout.write(self.style.MIGRATE_HEADING(named(name)))
        if answer is None or not answer.jobs:
            self.stdout.write("No jobs.")
            return
        for stack in answer.jobs:
            if stack.jid:
                self.stdout.write(f"{named(stack.jid)} {named(stack.klass)}, running for {duration(stack.seconds)}:")
            else:
                self.stdout.write("A thread that runs a job; a job holds the interpreter of the worker:")
            for frame in stack.frames:
                self.stdout.write(f'  File "{one_line(frame.path)}", line {frame.line}, in {one_line(frame.function)}')
                if frame.source:
                    self.stdout.write(f"    {one_line(frame.source)}")
            if not stack.frames:
                self.stdout.write("  no stack")
        if answer.left_out:
            self.stdout.write(f"{answer.left_out} more jobs.")


def _facts(client: Client, report: WorkerReport) -> tuple[str, str, str, str, str]:
    job = max(report.jobs, key=lambda job: job.seconds, default=None)
    longest = "" if job is None else f"{named(job.klass)} {duration(job.seconds + report.age)}"
    pending = "".join(f", {request.action} requested" for request in report.requests)
    return (
        f"{'late, ' if report.late_job else ''}{named(report.state)}{pending}",
        f"{report.used}/{report.slots}",
        longest,
        duration(max(0.0, client.clock() - report.started)),
        named(report.release or report.package),
    )


def _matching(client: Client, patterns: Sequence[str]) -> list[str]:
    """Return the names of the reporting workers that match. Raises `CommandError` for a pattern without a match."""
    reporting = [report.name for report in client.workers.reports()]
    names: list[str] = []
    for pattern in patterns:
        matches = [name for name in reporting if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not matches:
            raise CommandError(f"No worker that reports is named {named(pattern)}. See qless_workers list.")
        names += [name for name in matches if name not in names]
    return names


def _send(client: Client, action: str, name: str, options: dict[str, Any]) -> int:
    workers = client.workers
    if action == SCALE:
        return workers.scale(name, options["slots"])
    send = {QUIET: workers.quiet, RESUME: workers.resume, STOP: workers.stop, STACKS: workers.request_stacks}[action]
    return send(name)


def _answered(client: Client, name: str, request: int) -> bool:
    """Return whether stacks have been sent, perhaps by another process, because the worker is blocked."""
    answer = client.workers.stacks(name)
    return answer is not None and answer.id == request


def _wait(client: Client, action: str, requests: dict[str, int], until: float) -> list[str]:
    """Wait until the workers have followed the requests; return the names of those that have not."""
    while True:
        missing = [
            report.name
            for report in client.workers.reports(*requests)
            if any(request.id <= requests[report.name] and request.action == action for request in report.requests)
            and not (action == STACKS and _answered(client, report.name, requests[report.name]))
        ]
        if not missing or time.monotonic() >= until:
            return missing
        time.sleep(0.1)
