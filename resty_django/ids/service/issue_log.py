"""The issue log: a file with every issued ID, its rule and its application name.

Each line has the time in UTC, rule, application name and ID, separated by tabs. Lines are written in batches (at least
once a second), each with a single append, so that several processes can share a file and log rotation by renaming
works.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from resty_django.text import logger

log = logger("resty_django.ids")


class IssueLog:
    """A log in the file at `path`. A write error is logged once and does not stop the service."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._failing = False
        self._closed = threading.Event()
        threading.Thread(target=self._keep_flushing, name="resty-ids-issue-log", daemon=True).start()

    def write(self, rule: str, app: str, ids: Sequence[str]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        with self._lock:
            self._lines.extend(f"{stamp}\t{rule}\t{app}\t{issued_id}\n" for issued_id in ids)
            full = len(self._lines) >= 1000
        if full:
            self.flush()

    def flush(self) -> None:
        """Write all lines to the file."""
        with self._lock:
            lines, self._lines = self._lines, []
            if not lines:
                return
            try:
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
                try:
                    data = "".join(lines).encode()
                    while data:
                        data = data[os.write(handle, data) :]
                finally:
                    os.close(handle)
                self._failing = False
            except OSError as error:
                if not self._failing:
                    log.error("Cannot write the issue log %s; its lines are lost: %s", self.path, error)
                self._failing = True

    def close(self) -> None:
        self._closed.set()
        self.flush()

    def _keep_flushing(self) -> None:
        while not self._closed.wait(1.0):
            self.flush()


def open_log(path: str | None) -> IssueLog | None:
    """Return the log at `path`, or None if `path` is None."""
    return IssueLog(path) if path else None
