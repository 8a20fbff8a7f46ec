"""The display of `--live`: queues, rates and running jobs, in plain ANSI."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, Final

from resty_django.redis import StoreError

from ..default import client
from ..errors import QlessError
from .running import BY_ITSELF, COMPLETED, FAILED, LOST, RETRIED, RETURNED

if TYPE_CHECKING:
    from .supervisor import Supervisor

CLEAR: Final = "\x1b[H\x1b[2J"
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
SPAN: Final = 10.0
"""Seconds that a rate is of."""
COUNTS: Final = 1.0
"""Seconds between two questions for the lengths of the queues."""
COLUMNS: Final = ("waiting", "running", "stalled", "scheduled", "depends", "recurring")


class Live:
    """Called with the supervisor, writes one screen."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._seen: deque[tuple[float, Counter[str]]] = deque()
        self._queues: list[Any] = []
        self._trouble = ""
        self._asked = float("-inf")

    def __call__(self, supervisor: Supervisor) -> None:
        now = self._clock()
        if now - self._asked >= COUNTS:
            self._asked = now
            try:
                wanted = set(supervisor.options.queues)
                self._queues = [each for each in client.queues.counts() if each.name in wanted]
                self._trouble = ""
            except (StoreError, QlessError) as error:
                self._trouble = f"the server cannot be asked: {error}"
        snapshots = list(supervisor.snapshots.values())
        totals = Counter(supervisor.gone)
        for each in snapshots:
            totals.update(each["counts"])
        self._seen.append((now, totals))
        while now - self._seen[0][0] > SPAN and len(self._seen) > 2:
            self._seen.popleft()
        size = shutil.get_terminal_size()
        lines = self._lines(supervisor, snapshots, totals)
        shown = [_cut(line, size.columns) for line in lines][: max(1, size.lines - 1)]
        self._write(CLEAR + "\r\n".join(shown) + "\r\n")

    def _lines(self, supervisor: Supervisor, snapshots: list[dict[str, Any]], totals: Counter[str]) -> Iterable[str]:
        state = "stops" if supervisor.stopping else "paused" if supervisor.paused else "runs"
        yield f"{BOLD}{supervisor.options.name}{PLAIN}  pid {os.getpid()}  {state}  {len(snapshots)} processes"
        began, first = self._seen[0]
        span = max(self._clock() - began, 0.001)
        kinds = (COMPLETED, BY_ITSELF, RETRIED, FAILED, LOST, RETURNED)
        yield "  ".join(f"{kind} {totals[kind]} ({(totals[kind] - first[kind]) / span:.1f}/s)" for kind in kinds)
        if self._trouble:
            yield printable(self._trouble)
        yield ""
        yield f"{BOLD}{'queue':<24}" + "".join(f"{column:>11}" for column in COLUMNS) + PLAIN
        for queue in self._queues:
            counts = "".join(f"{getattr(queue, column):>11}" for column in COLUMNS)
            yield f"{printable(queue.name):<24.24}{counts}{'  paused' if queue.paused else ''}"
        yield ""
        yield f"{BOLD}{'running':<34}{'seconds':>9}  {'queue':<16} class{PLAIN}"
        running = [job for each in snapshots for job in each["running"]]
        for job in sorted(running, key=lambda job: -job["seconds"]):
            yield (
                f"{printable(job['jid']):<34.34}{job['seconds']:>9.1f}  {printable(job['queue']):<16.16} "
                f"{printable(job['klass'])}"
            )


class Terminal:
    """Writes to the terminal of a stream without ever waiting for it: what does not fit is lost.

    A terminal that is held (Ctrl-S), slow or gone must not hold those who look after the workers. It is opened anew, as
    a flag on the stream itself would be seen by the shell too.
    """

    def __init__(self, stream: IO[str]) -> None:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        self._file = os.open(os.ttyname(stream.fileno()), flags)

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._file, text.encode("utf-8", "replace"))


def printable(text: str) -> str:
    """Without what would steer a terminal: names of jobs may come from anybody."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _cut(line: str, width: int) -> str:
    styled = line.count(BOLD) * len(BOLD) + line.count(PLAIN) * len(PLAIN)
    return line[: width + styled]


__all__ = ["Live", "Terminal", "printable"]
