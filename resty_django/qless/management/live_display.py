"""The terminal display of `--live`: queues, rates and running jobs, in plain ANSI."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any

from resty_django.redis.errors import StoreError
from resty_django.text import one_line

from ..clients.default import client
from ..clients.replies import QUEUE_STATES, QueueCounts
from ..errors import QlessError

if TYPE_CHECKING:
    from .supervisor import Supervisor

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class LiveDisplay:
    """Writes one screen each time it is called with the supervisor.

    Rates are averages of 10 seconds; the queue lengths are read once a second.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._history: deque[tuple[float, Counter[str]]] = deque()
        self._queues: list[QueueCounts] = []
        self._problem = ""
        self._counted_at = float("-inf")

    def __call__(self, supervisor: Supervisor) -> None:
        now = self._clock()
        if now - self._counted_at >= 1:
            self._counted_at = now
            try:
                names = set(supervisor.options.queues)
                self._queues = [queue for queue in client.queues.counts() if queue.name in names]
                self._problem = ""
            except (StoreError, QlessError) as error:
                self._problem = f"the server does not answer: {error}"
        snapshots = list(supervisor.snapshots.values())
        totals = Counter(supervisor.ended_counts)
        for snapshot in snapshots:
            totals.update(snapshot["counts"])
        self._history.append((now, totals))
        while now - self._history[0][0] > 10 and len(self._history) > 2:
            self._history.popleft()
        size = shutil.get_terminal_size()
        lines = self._lines(supervisor, snapshots, totals)
        screen = [_cut(line, size.columns) for line in lines][: max(1, size.lines - 1)]
        clear = "\x1b[H\x1b[2J"
        self._write(clear + "\r\n".join(screen) + "\r\n")

    def _lines(self, supervisor: Supervisor, snapshots: list[dict[str, Any]], totals: Counter[str]) -> Iterable[str]:
        state = "stops" if supervisor.stopping else "paused" if supervisor.paused else "runs"
        yield f"{BOLD}{supervisor.options.name}{PLAIN}  pid {os.getpid()}  {state}  {len(snapshots)} processes"
        started_at, first_totals = self._history[0]
        span = max(self._clock() - started_at, 0.001)
        kinds = ("completed", "by itself", "retried", "failed", "lost", "returned")
        yield "  ".join(f"{kind} {totals[kind]} ({(totals[kind] - first_totals[kind]) / span:.1f}/s)" for kind in kinds)
        if self._problem:
            yield printable(self._problem)
        yield ""
        yield f"{BOLD}{'queue':<24}" + "".join(f"{state:>11}" for state in QUEUE_STATES) + PLAIN
        for queue in self._queues:
            counts = "".join(f"{getattr(queue, state):>11}" for state in QUEUE_STATES)
            yield f"{printable(queue.name):<24.24}{counts}{'  paused' if queue.paused else ''}"
        yield ""
        yield f"{BOLD}{'running':<34}{'seconds':>9}  {'queue':<16} class{PLAIN}"
        running = [job for snapshot in snapshots for job in snapshot["running"]]
        for job in sorted(running, key=lambda job: -job["seconds"]):
            yield (
                f"{printable(job['jid']):<34.34}{job['seconds']:>9.1f}  {printable(job['queue']):<16.16} "
                f"{printable(job['klass'])}"
            )


class Terminal:
    """Writes to a stream's terminal without ever waiting for it: output that does not fit is dropped.

    A terminal that is paused (Ctrl-S), slow or closed must not block the supervisor. The terminal is opened a second
    time, since a flag on the stream itself would also affect the shell.
    """

    def __init__(self, stream: IO[str]) -> None:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        self._file = os.open(os.ttyname(stream.fileno()), flags)

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._file, text.encode("utf-8", "replace"))


def printable(text: str) -> str:
    """Return at most 200 characters with control characters escaped: names and messages are untrusted."""
    return one_line(text, 200)


def _cut(line: str, width: int) -> str:
    styled = line.count(BOLD) * len(BOLD) + line.count(PLAIN) * len(PLAIN)
    return line[: width + styled]
