"""The ID service against its limits, side by side in one run. Linux only.

    python bench/ids.py [--quick] [--seconds S] [--rounds N] [--only udp,python,gapless,http] [--json FILE]

UDP: `runidserver` (as it is, and with --batch 0: no batched calls) against a bare Python loop of recvfrom and sendto
and a bare uvloop echo; each server on the first core, the client on the second, or both on the first ("same").
Python: `next_id` against `str(uuid.uuid4())`. Gapless: `next_id` of a gapless rule against django-sequences, each in
a transaction on the same SQLite; left out if the first run has no network. HTTP: single requests against batches of
1000 over one connection to uvicorn.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

from _table import ROOT, Options, Row, Samples, compare, cpu_seconds, importable, main, measure, timed

RULE = "O{now:%y%m%d}{counter:012d}"
PAIRS = (("runidserver", "echo"), ("runidserver", "uvloop echo"), ("runidserver --batch 0", "echo"))
UNITS = {"rate": "a second", "p50": "us", "CPU": "us"}


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def prepare(options: Options) -> None:
    """A temporary database with the rule `bench`."""
    os.environ |= {
        "RESTY_VAR": str(options.folder),
        "RESTY_DB_NAME": f"{options.folder}/bench.sqlite3",
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }
    import django
    from django.conf import settings
    from django.core.management import call_command

    importable(options, "django-sequences")
    options.peer = importlib.util.find_spec("sequences") is not None
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, *(["sequences"] if options.peer else [])]
    django.setup()
    call_command("migrate", verbosity=0)
    from django.contrib.auth import get_user_model

    from resty_django.ids.models import IdRule

    IdRule.objects.create(name="bench", source=RULE, max_counter=10**12 - 1, reset_seconds=86_400)
    IdRule.objects.create(name="invoice", source="{counter:012d}", max_counter=10**12 - 1, gapless=True)
    get_user_model().objects.create_superuser("bench", "", "bench")


@contextlib.contextmanager
def running(*command: str, cpu: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    process = subprocess.Popen([*pin, sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def wait_for_udp(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.1)
        sock.connect(("127.0.0.1", port))
        for _ in range(200):
            with contextlib.suppress(OSError):
                sock.send(b'{"action":"get","app_name":"bench","rule_name":"bench"}')
                sock.recv(4096)
                return
            time.sleep(0.05)
    raise SystemExit(f"nothing answers on UDP port {port}")


def udp(options: Options) -> Iterator[Row]:
    cores = sorted(os.sched_getaffinity(0))
    server_core, client_core = cores[0], cores[-1]
    serve = ("manage.py", "runidserver", "--stats", "0", "--port")
    commands: dict[str, Callable[[int], tuple[str, ...]]] = {
        "echo": lambda port: ("bench/_echo.py", "loop", str(port)),
        "uvloop echo": lambda port: ("bench/_echo.py", "uvloop", str(port)),
        "runidserver": lambda port: (*serve, str(port)),
        "runidserver --batch 0": lambda port: (*serve, str(port), "--batch", "0"),
    }
    with contextlib.ExitStack() as stack:
        servers: dict[str, tuple[int, int]] = {}
        for name, command in commands.items():
            port = free_port(socket.SOCK_DGRAM)
            servers[name] = (port, stack.enter_context(running(*command(port), cpu=server_core)).pid)
        for port, _ in servers.values():
            wait_for_udp(port)
        for title, outstanding, core in (
            ("1 outstanding, same core", 1, server_core),
            ("64 outstanding, two cores", 64, client_core),
            ("64 outstanding, same core", 64, server_core),
        ):
            samples: dict[str, Samples] = {figure: {name: [] for name in servers} for figure in UNITS}
            for _ in range(options.rounds):
                for name, (port, pid) in servers.items():
                    before = cpu_seconds(pid)
                    load = [*("bench/_udpload.py", str(port), str(outstanding), str(options.seconds)), str(core)]
                    done = subprocess.run([sys.executable, *load], cwd=ROOT, capture_output=True, check=True)
                    result = json.loads(done.stdout)
                    result["CPU"] = (cpu_seconds(pid) - before) / result["requests"] * 1e6
                    for figure in UNITS:
                        samples[figure][name].append(result[figure])
            for figure, unit in UNITS.items():
                yield from compare(samples[figure], PAIRS, unit, f"UDP, {title}, {figure}: ")


def python(options: Options) -> Iterator[Row]:
    from resty_django.ids import next_id, next_ids, stop

    subjects = {
        "next_id": timed("next_id('bench', 'bench')", next_id=next_id),
        "str(uuid.uuid4())": timed("str(uuid4())", uuid4=uuid.uuid4),
        "next_ids of 1000": timed("next_ids('bench', 1000, 'bench')", next_ids=next_ids),
    }
    samples = measure(subjects, options)
    stop()
    batch = "next_ids of 1000, an ID"
    samples[batch] = [took / 1000 for took in samples.pop("next_ids of 1000")]
    yield from compare(samples, (("str(uuid.uuid4())", "next_id"), ("next_id", batch)))


def gapless(options: Options) -> Iterator[Row]:
    from django.db import transaction

    from resty_django.ids import next_id

    statement = "with atomic():\n take('invoice')"
    ours, theirs = "next_id, gapless", "django-sequences"
    subjects = {ours: timed(statement, atomic=transaction.atomic, take=next_id)}
    if options.peer:
        from sequences import get_next_value

        subjects[theirs] = timed(statement, atomic=transaction.atomic, take=get_next_value)
    yield from compare(measure(subjects, options), [(theirs, ours)])


def http_rates(options: Options) -> Iterator[Row]:
    import base64

    port = free_port(socket.SOCK_STREAM)
    headers = {
        "Authorization": "Basic " + base64.b64encode(b"bench:bench").decode(),
        "Content-Type": "application/json",
    }
    with running("-m", "uvicorn", "project.asgi:application", "--port", str(port), "--log-level", "error"):
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
            time.sleep(0.1)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        login(connection, headers)

        def rate(count: int) -> float:
            ids, began = 0, time.perf_counter()
            while (now := time.perf_counter()) - began < options.seconds:
                connection.request(
                    "POST", "/api/ids/rules/bench/ids/", json.dumps({"app": "http", "count": count}), headers
                )
                answer = connection.getresponse()
                body = answer.read()
                if answer.status not in (200, 201):
                    raise SystemExit(f"HTTP {answer.status}: {body!r:.300}")
                ids += count
            return ids / (now - began)

        rate(1)
        samples: Samples = {"batches of 1000": [], "single": []}
        for _ in range(options.rounds):
            samples["single"].append(rate(1))
            samples["batches of 1000"].append(rate(1000))
    yield from compare(samples, (("batches of 1000", "single"),), "IDs a second", "HTTP, ")


def login(connection: http.client.HTTPConnection, headers: dict[str, str]) -> None:
    """Take a session: hashing a password in each request would hide what is measured."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore

    user = get_user_model().objects.get(username="bench")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    token = "a" * 32
    del headers["Authorization"]
    headers |= {"Cookie": f"sessionid={session.session_key}; csrftoken={token}", "X-CSRFToken": token}


if __name__ == "__main__":
    main({"udp": udp, "python": python, "gapless": gapless, "http": http_rates}, prepare, seconds=1.0)
