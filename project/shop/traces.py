"""Traces of one request: the steps of its job, and its log lines."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.utils.translation import gettext as _

from resty_django.qless import Job, QlessError, client
from resty_django.redis import StoreError

log = logging.getLogger("project.shop")

LOGS: Final = ("site", "worker")
LOG_BYTES: Final = 65_536
"""Maximum number of bytes read from the end of each log file."""
MAX_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Step:
    when: datetime
    text: str


@dataclass(frozen=True, slots=True)
class JobTrace:
    """A job with its steps, oldest first. `error`: the message of the latest failed run."""

    jid: str
    state: str
    txid: str
    steps: list[Step]
    error: str
    progress: float | None
    result: str

    @property
    def is_finished(self) -> bool:
        return self.state in ("complete", "failed")


def job_trace(jid: str) -> JobTrace | None:
    """Return the trace of a job; None if it is gone, or the server is unavailable."""
    try:
        job = next(iter(client.jobs.multiget(jid)), None)
        result = job.result() if job is not None else None
    except (QlessError, StoreError) as error:
        log.warning("The job %s is unavailable: %s", jid, error)
        return None
    if job is None:
        return None
    is_complete = job.state == "complete"
    return JobTrace(
        jid,
        job.state,
        job.txid or "",
        list(_steps(job)),
        "" if is_complete else str(job.failure.get("message", "")).partition("\n")[0],
        result.progress if result is not None and not is_complete else None,
        str(result.result) if result is not None and is_complete else "",
    )


def _steps(job: Job) -> Iterator[Step]:
    run = 0
    for entry in job.raw_queue_history:
        what = entry.get("what")
        run += what == "popped"
        yield Step(datetime.fromtimestamp(entry.get("when", 0), UTC), _step_text(what, run, entry))


def _step_text(what: Any, run: int, entry: dict[str, Any]) -> str:
    if what == "put":
        return _("Enqueued in the queue %(queue)s") % {"queue": entry.get("q")}
    if what == "popped" and run == 1:
        return _("Run by the worker")
    if what == "popped":
        return _("Retried after an error: run %(number)s") % {"number": run}
    if what == "done":
        return _("Completed")
    return str(what)


def log_lines(txid: str) -> list[tuple[str, str]]:
    """Return the name of the process and the text of each log line with a txid, in the files of `manage.py demo`."""
    if not txid:
        return []
    folder = settings.VAR / "log"
    lines = [(name, line) for name in LOGS for line in _last_lines(folder / f"{name}.log") if txid in line]
    return sorted(lines, key=lambda line: line[1])[-MAX_LINES:]


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
