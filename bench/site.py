"""A page under gunicorn, of a site with this package and of the same site without it.

    python bench/site.py [--quick] [--rounds N] [--requests N] [--json FILE]

Each site has the middleware that `startproject` writes, and one worker of gunicorn's default kind. The view returns
4 kB without any work, so nothing is saved by caching it. The sites take turns with a few requests, each over a new
connection; the figures of a round are medians of its turns. CPU time is the worker's, and only on Linux.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from _table import Options, Row, Samples, compare, main

BARE, ALL = "without the package", "txid, limit, cached view"
SITES = {
    BARE: "bare",
    "installed": "",
    "txid": "txid",
    "limit": "limit",
    "cached view": "cache",
    ALL: "txid,limit,cache",
}
TURNS = 12
"""In a round."""
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Site:
    """A worker of gunicorn."""

    def __init__(self, parts: str, folder: Path) -> None:
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            self._address: tuple[str, int] = chosen.getsockname()
        gunicorn = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{self._address[1]}", "--log-level", "error"]
        environ = {**os.environ, "PARTS": parts, "DICTS": str(folder)}
        self._process = subprocess.Popen([*gunicorn, "_site:application"], cwd=Path(__file__).parent, env=environ)
        until = time.monotonic() + 30
        while not self._answers():
            if time.monotonic() > until:
                raise SystemExit(f"The site with {parts} does not answer.")
            time.sleep(0.05)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._worker = children.read_text().split()[0] if children.exists() else None

    def _answers(self) -> bool:
        try:
            return self.request()
        except OSError:
            return False

    def request(self) -> bool:
        """Return whether the page has arrived."""
        with socket.create_connection(self._address) as connection:
            connection.sendall(REQUEST)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        return answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"tea ")

    def measure(self, count: int) -> tuple[float, float]:
        """Return the microseconds that a request takes, and the microseconds of the worker's CPU."""
        began, cpu = time.perf_counter(), self._cpu()
        for _ in range(count):
            assert self.request()
        return (time.perf_counter() - began) / count * 1e6, (self._cpu() - cpu) / count / 1000

    def _cpu(self) -> int:
        """Return the nanoseconds that all threads of the worker have run."""
        if self._worker is None:
            return 0
        tasks = Path(f"/proc/{self._worker}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def pages(options: Options) -> Iterator[Row]:
    rates: Samples = {name: [] for name in SITES}
    times: Samples = {name: [] for name in SITES}
    with ExitStack() as stack:
        sites = {}
        for name, parts in SITES.items():
            sites[name] = Site(parts, options.folder)
            stack.callback(sites[name].stop)
            sites[name].measure(100)
        for _ in range(options.rounds):
            turns: dict[str, list[tuple[float, float]]] = {name: [] for name in SITES}
            for turn in range(TURNS):
                for name in list(SITES)[:: 1 if turn % 2 else -1]:
                    turns[name].append(sites[name].measure(options.requests // (4 if options.quick else 1)))
            for name in SITES:
                took, cpu = map(statistics.median, zip(*turns[name], strict=True))
                rates[name].append(1e6 / took)
                times[name].append(cpu)
    pairs = [(name, BARE, *([">= 0.95"] if name == ALL else [])) for name in SITES if name != BARE]
    yield from compare(rates, pairs, "a second", "requests, ")
    if all(times[BARE]):
        yield from compare(times, [(ALL, BARE)], "us", "CPU time of a request, ")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=40, help="in a turn of a site")


if __name__ == "__main__":
    main({"pages": pages}, arguments=arguments)
