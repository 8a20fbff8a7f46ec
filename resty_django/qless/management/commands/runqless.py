"""`manage.py runqless`: the workers of the job queue."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.redis import StoreError

from ...default import default_client
from ...worker.live import Live, Terminal
from ...worker.options import options as worker_options
from ...worker.supervisor import Supervisor


class Command(BaseCommand):
    help = (
        "Run jobs. SIGTERM and Ctrl-C end it after the jobs that run, which are given back to their queues when the "
        "grace time is over; a second one at once. SIGQUIT waits for them as long as it takes. SIGUSR1 starts all "
        "processes anew, SIGUSR2 pauses, SIGCONT goes on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", help="names with commas between; the first one comes first")
        parser.add_argument("--reserver", help="ordered, round_robin, shuffled, or the dotted path of a class")
        parser.add_argument("--concurrency", type=int, help="jobs that one process runs at once")
        parser.add_argument("--processes", type=int, help="how many processes")
        parser.add_argument("--interval", type=float, help="seconds between two looks where nobody tells of jobs")
        parser.add_argument("--grace", type=float, help="seconds that jobs have to end after SIGTERM")
        parser.add_argument("--name", help="what the names of the workers begin with")
        parser.add_argument("--via", choices=("celery",), help="hand the jobs to the workers of Celery")
        parser.add_argument("--live", action="store_true", help="show queues, rates and running jobs in the terminal")

    def handle(self, *args: Any, **given: Any) -> None:
        queues = given["queues"]
        names = None if queues is None else tuple(dict.fromkeys(filter(None, map(str.strip, queues.split(",")))))
        for option, least in (("concurrency", 1), ("processes", 1), ("grace", 0)):
            if given[option] is not None and not given[option] >= least:
                raise CommandError(f"--{option} is at least {least}")
        if given["interval"] is not None and not given["interval"] > 0:
            raise CommandError("--interval is more than 0")
        if names == ():
            raise CommandError("--queues names no queue")
        if given["live"] and not sys.stdout.isatty():
            raise CommandError("--live needs a terminal; without it the log tells what happens")
        wanted = ("reserver", "concurrency", "processes", "interval", "grace", "name", "via")
        try:
            options = worker_options(queues=names, **{option: given[option] for option in wanted})
            options.make_reserver()
            with contextlib.suppress(StoreError):  # the workers wait until the server is there
                default_client().source.sync()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        if given["verbosity"] > 0 and not given["live"]:
            self.stdout.write(
                f"Worker of {', '.join(options.queues)}: {options.processes} processes with {options.concurrency} jobs "
                "each; end it with Ctrl-C"
            )
            self.stdout.flush()
        display = None
        if given["live"]:
            try:
                display = Live(Terminal(sys.stdout).write)
            except OSError as error:
                raise CommandError(f"--live cannot open its terminal: {error}") from error
        code = Supervisor(options, display).run()
        logging.shutdown()
        sys.exit(code)
