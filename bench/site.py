"""A page under gunicorn, of a site with this package and of the same site without it.

    python bench/site.py [--turns N] [--requests N] [--json FILE]

Each site has the middleware that `startproject` writes, and one worker of gunicorn's default kind. The view returns
4 kB without any work, so nothing is saved by caching it. In each turn, all sites take turns with a few requests, each
over a new connection; the figures are medians of all turns. CPU time is the worker's, and only on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from shdict import folder_in_memory

BARE, ALL = "without the package", "txid, limit, cached view"
SITES = {
    BARE: "bare",
    "installed": "",
    "txid": "txid",
    "limit": "limit",
    "cached view": "cache",
    ALL: "txid,limit,cache",
}
LEAST = 0.95
"""The wanted share of the requests per second of the site without the package."""
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
        """Return the microseconds that a request takes, and those of the worker's CPU."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--requests", type=int, default=40, help="in a turn of a site")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in SITES}
    with tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder, ExitStack() as stack:
        sites = {}
        for name, parts in SITES.items():
            sites[name] = Site(parts, Path(folder))
            stack.callback(sites[name].stop)
            sites[name].measure(100)
        for turn in range(options.turns):
            for name in list(SITES)[:: 1 if turn % 2 else -1]:
                times[name].append(sites[name].measure(options.requests))
    print("us a request, us of the worker's CPU, and requests per second as a share of the site without the package")
    results = {}
    for name in SITES:
        took, cpu = map(statistics.median, zip(*times[name], strict=True))
        shares = [bare / ours for (bare, _), (ours, _) in zip(times[BARE], times[name], strict=True)]
        low, share, high = statistics.quantiles(shares)
        cpu_share = statistics.median(
            bare / max(ours, 1e-9) for (_, bare), (_, ours) in zip(times[BARE], times[name], strict=True)
        )
        results[name] = {"us": took, "cpu": cpu, "share": share, "cpu share": cpu_share}
        print(
            f"  {name:26s} {took:8.1f} {cpu:8.1f}   {share:.3f} ({low:.3f} to {high:.3f}), of CPU time {cpu_share:.3f}"
        )
    share = results[ALL]["share"]
    print(f"  {ALL}: {share:.3f} x {BARE} (at least {LEAST:g}: {'reached' if share >= LEAST else 'MISSED'})")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
