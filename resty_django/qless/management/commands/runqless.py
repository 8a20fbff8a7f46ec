"""`manage.py runqless`: runs the workers of the job queue."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from typing import Any

from django.core.checks.registry import registry
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django import extras
from resty_django.conf.sections.qless import POOLS
from resty_django.redis.errors import StoreError
from resty_django.text import one_line
from resty_django.text.suggestions import did_you_mean

from ...checks import check_tasks
from ...clients.default import default_client
from ...worker.options import WorkerOptions
from ...worker.options import options as worker_options
from ..live_display import LiveDisplay, Terminal
from ..reloader import is_reloaded, run_reloaded
from ..supervisor import Supervisor


class Command(BaseCommand):
    help = (
        "Run jobs. SIGTERM or Ctrl-C stops it once the running jobs have finished; when the grace period ends, the "
        "remaining jobs return to their queues. A second signal returns them at once. SIGQUIT waits for them without a "
        "time limit. SIGUSR1 restarts all processes, SIGUSR2 pauses, SIGCONT resumes."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", help="Comma-separated queue names, in order of preference.")
        parser.add_argument(
            "--reserver", help="Polling strategy: ordered, round_robin, shuffled, or the dotted path of a class."
        )
        parser.add_argument("--concurrency", type=int, help="Number of jobs that one process runs at once.")
        parser.add_argument("--processes", type=int, help="Number of processes.")
        parser.add_argument("--interval", type=float, help="Polling interval in seconds.")
        parser.add_argument("--grace", type=float, help="Seconds that running jobs have to finish after SIGTERM.")
        parser.add_argument("--name", help="Prefix of the worker names.")
        parser.add_argument("--via", choices=("celery",), help="Hand the jobs to Celery's workers.")
        parser.add_argument("--pool", help="Where jobs run: threads, or processes with one job each.")
        parser.add_argument(
            "--kill-after",
            type=float,
            help="With --pool processes: seconds that a lost or timed-out job has to end before its process is killed.",
        )
        parser.add_argument("--burst", action="store_true", help="Stop when no job is ready in the queues.")
        parser.add_argument("--max-jobs", type=int, help="Replace a process after it has run this number of jobs.")
        parser.add_argument(
            "--reload", action="store_true", help="Restart when code of the site changes, for development."
        )
        parser.add_argument("--live", action="store_true", help="Show queues, rates and running jobs in the terminal.")

    def check(self, *args: Any, **kwargs: Any) -> None:
        registry.registered_checks.discard(check_tasks)  # the workers import the tasks, and run those without errors
        super().check(*args, **kwargs)

    def handle(self, *args: Any, **arguments: Any) -> None:
        self._check_arguments(arguments)
        if arguments["reload"] and not is_reloaded():
            sys.exit(run_reloaded(self.stdout))
        options = self._options(arguments)
        if arguments["verbosity"] > 0 and not arguments["live"]:
            self.stdout.write(
                f"Worker of {one_line(', '.join(options.queues))}: {options.processes} "
                f"process{'' if options.processes == 1 else 'es'} with "
                f"{options.concurrency} jobs each. Press Ctrl-C to stop."
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

    def _check_arguments(self, arguments: dict[str, Any]) -> None:
        """Raise `CommandError` for a wrong value."""
        for option, least in (("concurrency", 1), ("processes", 1), ("grace", 0), ("kill_after", 0), ("max_jobs", 1)):
            if arguments[option] is not None and not least <= arguments[option] < math.inf:
                raise CommandError(f"--{option.replace('_', '-')} must be at least {least}, and finite.")
        if arguments["pool"] is not None and arguments["pool"] not in POOLS:
            suggestion = did_you_mean(arguments["pool"], POOLS, f"Use {' or '.join(POOLS)}.", quote="")
            raise CommandError(f"--pool {one_line(arguments['pool'])} is not a pool. {suggestion}")
        if arguments["interval"] is not None and not 0 < arguments["interval"] < math.inf:
            raise CommandError("--interval must be greater than 0, and finite.")
        if arguments["burst"] and arguments["reload"]:
            raise CommandError("--burst ends the worker, and --reload starts it again. Remove one of them.")
        if arguments["live"] and not sys.stdout.isatty():
            raise CommandError("--live needs a terminal. Run without it and read the log instead.")

    def _options(self, arguments: dict[str, Any]) -> WorkerOptions:
        """Return the options of the settings, overridden by the arguments. Raise `CommandError` if they do not fit."""
        overrides = {name: arguments[name] for name in WorkerOptions.__slots__ if name in arguments}
        if arguments["queues"] is not None:
            names = filter(None, map(str.strip, arguments["queues"].split(",")))
            overrides["queues"] = tuple(dict.fromkeys(names))
            if not overrides["queues"]:
                raise CommandError("--queues is empty. Pass comma-separated queue names.")
        try:
            if arguments["via"] == "celery":
                extras.require("--via celery needs", "celery")
            options = worker_options(**overrides)
            options.make_reserver()
            if options.via and options.pool == "processes":
                raise CommandError("--via celery runs jobs in Celery's workers. Remove --pool processes, or POOL.")
            with contextlib.suppress(StoreError):  # the workers wait until the server answers
                default_client().source.sync()
        except ImproperlyConfigured as error:
            raise CommandError(one_line(error)) from error
        return options
