"""`manage.py runqless`: runs the workers of the job queue."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django import extras
from resty_django.redis.errors import StoreError
from resty_django.text import one_line

from ...clients.default import default_client
from ...worker.display import LiveDisplay, Terminal
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

    def handle(self, *args: Any, **arguments: Any) -> None:
        queues = arguments["queues"]
        names = None if queues is None else tuple(dict.fromkeys(filter(None, map(str.strip, queues.split(",")))))
        for option, least in (("concurrency", 1), ("processes", 1), ("grace", 0)):
            if arguments[option] is not None and not arguments[option] >= least:
                raise CommandError(f"--{option} must be at least {least}.")
        if arguments["interval"] is not None and not arguments["interval"] > 0:
            raise CommandError("--interval must be more than 0.")
        if names == ():
            raise CommandError("--queues names no queue. Give names with commas between.")
        if arguments["live"] and not sys.stdout.isatty():
            raise CommandError("--live needs a terminal. Leave it out: the log tells what happens.")
        option_names = ("reserver", "concurrency", "processes", "interval", "grace", "name", "via")
        try:
            if arguments["via"] == "celery":
                extras.require("--via celery needs", "celery")
            options = worker_options(queues=names, **{option: arguments[option] for option in option_names})
            options.make_reserver()
            with contextlib.suppress(StoreError):  # the workers wait until the server is there
                default_client().source.sync()
        except ImproperlyConfigured as error:
            raise CommandError(one_line(error)) from error
        if arguments["verbosity"] > 0 and not arguments["live"]:
            self.stdout.write(
                f"Worker of {one_line(', '.join(options.queues))}: {options.processes} processes with "
                f"{options.concurrency} jobs each; end it with Ctrl-C"
            )
            self.stdout.flush()
        display = None
        if arguments["live"]:
            try:
                display = LiveDisplay(Terminal(sys.stdout).write)
            except OSError as error:
                raise CommandError(f"--live cannot open its terminal: {one_line(error)}.") from error
        code = Supervisor(options, display).run()
        logging.shutdown()
        sys.exit(code)
