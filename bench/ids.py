"""The ID service against its limits, side by side in one run. Linux only.

    python bench/ids.py [--seconds S] [--rounds N] [--only udp,python,http] [--json FILE]

UDP: `runidserver` (as it is, and with --batch 0: no batched calls) against a bare Python loop of recvfrom and sendto
and a bare uvloop echo; each server on the first core, the client on the second, or both on the first ("same"). The
servers take turns, and the median of the rounds counts. Python: `next_id` against `str(uuid.uuid4())`. HTTP: single
requests against batches of 1000 over one connection to uvicorn. Every figure is a ratio to the peer of the same run.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RULE = "O{now:%y%m%d}{counter:012d}"
Result = dict[str, float]


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def prepare(folder: str) -> None:
    """A database of its own, with the rule `bench`."""
    os.environ |= {
        "RESTY_VAR": folder,
        "RESTY_DB_NAME": f"{folder}/bench.sqlite3",
        "DJANGO_SETTINGS_MODULE": "project.settings",
    }
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.contrib.auth import get_user_model

    from resty_django.ids.models import IdRule

    IdRule.objects.create(name="bench", source=RULE, max_counter=10**12 - 1, reset_seconds=86_400)
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


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all its threads."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


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


def udp(seconds: float, rounds: int) -> dict[str, dict[str, Result]]:
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
        table: dict[str, dict[str, Result]] = {}
        for title, outstanding, core in (
            ("1 outstanding, same core", 1, server_core),
            ("64 outstanding, two cores", 64, client_core),
            ("64 outstanding, same core", 64, server_core),
        ):
            samples: dict[str, list[Result]] = {name: [] for name in servers}
            for _ in range(rounds):
                for name, (port, pid) in servers.items():
                    before = cpu_seconds(pid)
                    done = subprocess.run(
                        [sys.executable, "bench/_udpload.py", str(port), str(outstanding), str(seconds), str(core)],
                        cwd=ROOT,
                        capture_output=True,
                        check=True,
                    )
                    result = json.loads(done.stdout)
                    result["cpu_us"] = (cpu_seconds(pid) - before) / result["requests"] * 1e6
                    samples[name].append(result)
            table[title] = {name: medians(results) for name, results in samples.items()}
    return table


def medians(results: list[Result]) -> Result:
    return {key: statistics.median(result[key] for result in results) for key in ("rate", "p50_us", "p99_us", "cpu_us")}


def python(rounds: int) -> Result:
    from resty_django.ids import next_id, next_ids, stop

    count = 50_000
    next_id("bench", "bench")
    ours, uuids, batch, empty = [], [], [], []
    for _ in range(rounds):
        ours.append(min(timeit.repeat(lambda: next_id("bench", "bench"), number=count, repeat=3)) / count)
        uuids.append(min(timeit.repeat(lambda: str(uuid.uuid4()), number=count, repeat=3)) / count)
        batch.append(min(timeit.repeat(lambda: next_ids("bench", 1000, "bench"), number=50, repeat=3)) / 50_000)
        empty.append(min(timeit.repeat(lambda: None, number=count, repeat=3)) / count)
    stop()
    names = ("next_id", "uuid4", "next_ids, batches of 1000", "empty call")
    return {
        name: statistics.median(times) * 1e6 for name, times in zip(names, (ours, uuids, batch, empty), strict=True)
    }


def http_figures(seconds: float, rounds: int) -> Result:
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
            while (now := time.perf_counter()) - began < seconds:
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
        pairs = [(rate(1), rate(1000)) for _ in range(rounds)]
    return {
        "single": statistics.median(single for single, _ in pairs),
        "batch of 1000": statistics.median(batch for _, batch in pairs),
        "ratio": statistics.median(batch / single for single, batch in pairs),
    }


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


def report(results: dict[str, Any]) -> None:
    for title, servers in results.get("udp", {}).items():
        bare = servers["echo"]
        print(f"\nUDP, {title}")
        for name, r in servers.items():
            print(
                f"  {name:24s} {r['rate']:9,.0f}/s  p50 {r['p50_us']:7.1f} us  p99 {r['p99_us']:7.1f} us  "
                f"CPU {r['cpu_us']:5.2f} us   rate {r['rate'] / bare['rate']:.2f} x  p50 "
                f"{r['p50_us'] / bare['p50_us']:.2f} x  CPU {r['cpu_us'] / bare['cpu_us']:.2f} x of echo"
            )
    if "python" in results:
        print("\nPython")
        for name, took in results["python"].items():
            print(f"  {name:28s} {took:6.3f} us   {took / results['python']['uuid4']:.2f} x of str(uuid.uuid4())")
    if "http" in results:
        print("\nHTTP, IDs a second over one connection")
        r = results["http"]
        print(f"  single {r['single']:,.0f}, batch of 1000 {r['batch of 1000']:,.0f}: {r['ratio']:.0f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="udp,python,http")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    chosen = set(options.only.split(","))
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        results: dict[str, Any] = {}
        if "udp" in chosen:
            results["udp"] = udp(options.seconds, options.rounds)
        if "python" in chosen:
            results["python"] = python(options.rounds)
        if "http" in chosen:
            results["http"] = http_figures(options.seconds, options.rounds)
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
