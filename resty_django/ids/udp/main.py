"""One UDP server process, or several that share a port, with statistics for the operator.

With several processes, the parent keeps the sockets open, so that datagrams wait in the kernel while a dead child is
restarted. Each child reserves its own numbers. The parent never uses the database.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from django.db import connections

from resty_django import events
from resty_django.processes.supervisor import Child, ProcessPool
from resty_django.text import logger

from .. import service as services
from . import stats
from .batch import BatchServer
from .server import UdpServer, bind

log = logger("resty_django.ids.udp")

Show = Callable[[str], None]


class Reporter:
    """Prints a line of statistics every `interval` seconds (0: never) and when `now` is called."""

    def __init__(self, show: Show, interval: float) -> None:
        self._show = show
        self._interval = interval
        self._before: dict[str, Any] | None = None
        self._then = self._printed = time.monotonic()

    @property
    def due(self) -> bool:
        return bool(self._interval) and time.monotonic() - self._printed >= self._interval

    def now(self, snapshots: list[dict[str, Any]]) -> None:
        """Print a line for the time since the last one."""
        total, at = stats.merge(snapshots), time.monotonic()
        self._show(stats.line(total, self._before, at - self._then))
        self._before, self._then, self._printed = total, at, at


def run_one(host: str, port: int, show: Show, interval: float, ready: Callable[[str], None], *, batch: int = 0) -> None:
    """Serve in this process until SIGTERM or SIGINT; SIGUSR1 prints the statistics."""
    sock = bind(host, port)
    ready(_address(sock))
    server = _server(sock, batch)
    reporter = Reporter(show, interval)
    stop_requested = threading.Event()

    def report() -> None:
        while not server.stopping:
            if stop_requested.wait(0.2) or reporter.due:
                stop_requested.clear()
                reporter.now([server.snapshot()])

    _on_signals(server.stop, stop_requested.set)
    threading.Thread(target=report, name="resty-ids-report", daemon=True).start()
    _load(server)
    events.start()
    server.serve()
    reporter.now([server.snapshot()])


def run_many(
    host: str, port: int, processes: int, show: Show, interval: float, ready: Callable[[str], None], *, batch: int = 0
) -> None:
    """Serve in `processes` children until SIGTERM or SIGINT; restart children that die."""
    bind(host, port).close()  # raises if the port is in use, which binding a shared socket would not
    sockets = [bind(host, port, shared=True) for _ in range(processes)]
    ready(_address(sockets[0]))
    connections.close_all()
    Parent(sockets, Reporter(show, interval), batch).run()


class Parent:
    """Starts a child for each socket, sums up their statistics and forwards signals."""

    def __init__(self, sockets: list[socket.socket], reporter: Reporter, batch: int) -> None:
        self._sockets = sockets
        self._batch = batch
        self._reporter = reporter
        self._latest: dict[int, dict[str, Any]] = {}
        self._gone: list[dict[str, Any]] = []
        self._kill_at = math.inf
        self._children = ProcessPool(
            "UDP server", len(sockets), self._work, on_report=self._on_report, on_exit=self._on_exit
        )

    def run(self) -> None:
        watched = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        self._children.run(*watched, on_signal=self._on_signal, on_tick=self._on_tick, tick=0.1)
        self._report()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGUSR1:
            self._report()
        elif not self._children.stopping:
            self._children.stopping = True
            self._kill_at = time.monotonic() + 15.0  # seconds until SIGKILL
            self._children.signal(signal.SIGTERM)

    def _on_tick(self) -> None:
        if time.monotonic() > self._kill_at:
            self._children.signal(signal.SIGKILL)
        if self._reporter.due:
            self._report()

    def _report(self) -> None:
        self._reporter.now([*self._gone, *self._latest.values()])

    def _work(self, index: int, commands: int, reports: int) -> int:
        for sock in self._sockets:
            if sock is not self._sockets[index]:
                sock.close()
        _child(self._sockets[index], self._batch, reports)
        return 0

    def _on_report(self, child: Child, line: bytes) -> None:
        self._latest[child.pid] = json.loads(line)

    def _on_exit(self, child: Child, code: int) -> None:
        last = self._latest.pop(child.pid, None)
        if last is not None:
            for rule in last["service"]["rules"].values():
                rule["remaining"] = 0
            self._gone = [_summed([*self._gone, last])]


def _summed(snapshots: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of several snapshots, in the format of one process."""
    total = stats.merge(snapshots)
    rules = {name: {"issued": issued, "remaining": 0, "names": 0} for name, issued in total["issued"].items()}
    return {
        **{name: total[name] for name in ("requests", "errors", "dropped", "buckets")},
        "service": {
            "rules": rules,
            "reservations": total["reservations"],
            "reservation_failures": total["reservation_failures"],
        },
    }


def _server(sock: socket.socket, batch: int) -> UdpServer:
    return BatchServer(sock, services.service(), batch) if batch else UdpServer(sock, services.service())


def _child(sock: socket.socket, batch: int, pipe: int) -> None:
    server = _server(sock, batch)
    _on_signals(server.stop, lambda: None)

    def report(*, last: bool = False) -> None:
        try:
            os.write(pipe, json.dumps(server.snapshot()).encode() + b"\n")
        except OSError:
            log.debug("The parent does not read the statistics.", exc_info=not last)

    def keep_reporting() -> None:
        while not server.stopping:
            time.sleep(0.25)
            report()

    threading.Thread(target=keep_reporting, name="resty-ids-report", daemon=True).start()
    _load(server)
    events.start()
    server.serve()
    report(last=True)
    events.stop()  # this process exits without running exit handlers


def _load(server: UdpServer) -> None:
    """Read the rules before the first request. If the database is down, the service keeps retrying."""
    from ..errors import IdError

    try:
        server.service.load()
    except IdError as error:
        log.error("The ID rules could not be read; requests are refused until they are: %s", error)


def _on_signals(stop: Callable[[], None], report: Callable[[], None]) -> None:
    def on_stop(number: int, frame: FrameType | None) -> None:
        stop()

    def on_report(number: int, frame: FrameType | None) -> None:
        report()

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    signal.signal(signal.SIGUSR1, on_report)


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
