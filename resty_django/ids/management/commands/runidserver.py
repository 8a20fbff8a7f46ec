"""`manage.py runidserver`: IDs as JSON over UDP."""

from __future__ import annotations

import argparse
import errno
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.conf import conf
from resty_django.text import one_line

from ...udp import batch as batched
from ...udp import main


class Command(BaseCommand):
    help = (
        "Serve IDs as JSON over UDP, for clients of id_server and for resty_django.ids.client. "
        "On SIGTERM it answers the requests that have arrived, returns unused numbers and exits; on SIGUSR1 it prints "
        "a line of statistics."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
        udp = conf.ids.udp
        parser.add_argument("--host", default=udp.host, help="address to bind")
        parser.add_argument("--port", type=int, default=udp.port, help="UDP port to bind")
        parser.add_argument("--processes", type=int, default=udp.processes, help="server processes sharing the port")
        parser.add_argument(
            "--batch",
            type=int,
            default=None,
            help=f"maximum number of datagrams per system call; 0: off (default if supported: {udp.batch})",
        )
        parser.add_argument(
            "--stats",
            type=float,
            default=None,
            help="seconds between lines of statistics; 0: none (default: 60; 1 on a terminal)",
        )

    def handle(self, *args: object, **options: Any) -> None:
        host, port, processes = options["host"], options["port"], options["processes"]
        if not host.isprintable():
            raise CommandError(f"--host {host!r} is not a host name or address. Name the address to bind.")
        if not 0 <= port <= 65535:
            raise CommandError(f"--port {port} is not a port. Use a number from 1 to 65535, or 0 for any free port.")
        if processes < 1:
            raise CommandError("--processes must be at least 1.")
        batch = options["batch"]
        if batch is None:
            batch = conf.ids.udp.batch if batched.available() else 0
        elif batch and not batched.available():
            raise CommandError("--batch requires recvmmsg and sendmmsg on 64 bits. Use --batch 0 on this system.")
        live = sys.stdout.isatty()
        interval = options["stats"] if options["stats"] is not None else (1.0 if live else 60.0)

        def show(line: str) -> None:
            if live:
                self.stdout.write(f"\r\x1b[K{line}", ending="")
                self.stdout.flush()
            else:
                self.stdout.write(line)

        def ready(address: str) -> None:
            count = f", {processes} processes" if processes > 1 else ""
            self.stdout.write(f"ID server on udp://{address}{count}; press Ctrl-C to stop")
            self.stdout.flush()

        try:
            if processes == 1:
                main.run_one(host, port, show, interval, ready, batch=batch)
            else:
                main.run_many(host, port, processes, show, interval, ready, batch=batch)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CommandError(
                    f"UDP port {port} of {one_line(host)} is in use. Choose another with --port."
                ) from error
            raise CommandError(f"Cannot serve on {one_line(host)}:{port}: {one_line(error)}") from error
        if live:
            self.stdout.write("")
