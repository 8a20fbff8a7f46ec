"""Rows of the archive, made from jobs: redacted, bounded in length, and without characters that a database rejects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from resty_django.database.times import to_db
from resty_django.health import described
from resty_django.text import logger

from ..clients.job import Job
from ..clients.serialization import readable
from ..models import ArchivedJob, token
from ..redaction import redacted_arguments, without_secrets

log = logger("resty_django.qless.archive")
T = TypeVar("T")

MAX_NAME_LENGTH: Final = 200
"""Maximum characters of the names of classes, queues and so on."""
MAX_ARGUMENTS_LENGTH: Final = 20_000
"""Maximum characters of the redacted arguments as JSON; longer ones are cut."""
MAX_HISTORY_ENTRIES: Final = 100
"""Maximum number of entries of the history: the first one and the latest ones."""
MAX_DETAIL_LENGTH: Final = 500
"""Maximum characters of each text in the history."""


def row_of(job: Job, state: str, finished: float) -> ArchivedJob | None:
    """Return the row of a job that ended at `finished`; None if its jid is too long.

    If the arguments cannot be read or redacted, the row has none.
    """
    key = token(job.jid)
    if len(key) > 255:  # what the column holds
        return None
    history = _history(job, state, finished)
    put = _timestamp(history[0] if history else {}, finished)
    run = _latest_run(history)
    started = None if run is None else _timestamp(run, None)
    failure = job.failure if state != ArchivedJob.State.COMPLETE else {}
    arguments, arguments_are = _arguments(job)
    tags = [_clean(str(tag)) for tag in job.tags]
    return ArchivedJob(
        key=key,
        klass=_clean(job.klass, MAX_NAME_LENGTH),
        queue=_clean(_queue(job, history), MAX_NAME_LENGTH),
        state=state,
        priority=job.priority,
        tags=json.dumps(tags, ensure_ascii=False),
        txid=_clean(job.txid or "", MAX_NAME_LENGTH),
        arguments=arguments,
        arguments_are=arguments_are,
        error_group=_clean(str(failure.get("group") or ""), MAX_NAME_LENGTH),
        error_message=_clean(str(failure.get("message") or "")[-10_000:]),
        worker=_clean(str((run or {}).get("worker") or ""), MAX_NAME_LENGTH),
        retries=_small(job.original_retries),
        retries_left=_small(max(0, job.retries_left)),
        put_at=_moment(put, finished),
        started_at=None if started is None else _moment(started, finished),
        finished_at=_moment(finished, finished),
        waited=None if started is None else max(0.0, started - put),
        ran=None if started is None else max(0.0, finished - started),
        history=json.dumps(history, ensure_ascii=False),
    )


def arguments_of(row: ArchivedJob) -> Any:
    """Return the stored arguments, which were redacted when the row was written; None if they are cut."""
    return None if row.arguments_are == ArchivedJob.Arguments.CUT else _loaded(row.arguments, None)


def tags_of(row: ArchivedJob) -> list[str]:
    """Return the tags of an archived job."""
    return [str(tag) for tag in _loaded(row.tags, [])]


def history_of(row: ArchivedJob) -> list[dict[str, Any]]:
    """Return the history of an archived job, oldest entry first."""
    return [entry for entry in _loaded(row.history, []) if isinstance(entry, dict)]


def _arguments(job: Job) -> tuple[str, str]:
    """Return the redacted arguments as JSON, and which of `ArchivedJob.Arguments` they are."""
    try:
        data = job.data
        text = _clean(json.dumps(redacted_arguments(job.klass, data), ensure_ascii=False, default=str))
        redacted = text != json.dumps(data, ensure_ascii=False, default=str)
    except Exception as error:  # data of a shape that nobody expects
        log.warning("job %s is archived without its arguments: %s", readable(job.jid, 100), described(error))
        return "null", ArchivedJob.Arguments.CUT
    if len(text) > MAX_ARGUMENTS_LENGTH:
        return text[:MAX_ARGUMENTS_LENGTH], ArchivedJob.Arguments.CUT
    return text, ArchivedJob.Arguments.REDACTED if redacted else ArchivedJob.Arguments.COMPLETE


def _history(job: Job, state: str, finished: float) -> list[dict[str, Any]]:
    """Return the history without secrets; with an entry for a cancellation, for which the core has none."""
    entries = [*job.raw_queue_history]
    if len(entries) > MAX_HISTORY_ENTRIES:
        entries = [entries[0], *entries[1 - MAX_HISTORY_ENTRIES :]]
    if state == ArchivedJob.State.CANCELED:
        entries.append({"what": "canceled", "when": int(finished)})
    return [
        {_clean(str(key), MAX_DETAIL_LENGTH): _detail(value) for key, value in without_secrets(e).items()}
        for e in entries
    ]


def _detail(value: object) -> str | float | None:
    """Return a value of the history; one that is not a plain value as bounded JSON."""
    if isinstance(value, int | float) or value is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _clean(text, MAX_DETAIL_LENGTH)


def _latest_run(history: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the history entry of the last run; None if the job never ran."""
    return next((entry for entry in reversed(history) if entry.get("what") in ("popped", "taken")), None)


def _queue(job: Job, history: Sequence[Mapping[str, Any]]) -> str:
    """Return the queue of a job, which a complete job has only in its history."""
    if job.queue_name:
        return job.queue_name
    return next((str(entry["q"]) for entry in reversed(history) if entry.get("what") == "put" and entry.get("q")), "")


def _timestamp(entry: Mapping[str, Any], default: T) -> float | T:
    when = entry.get("when")
    return float(when) if isinstance(when, int | float) and not isinstance(when, bool) else default


def _moment(timestamp: float, finished: float) -> datetime:
    """Return a time; a job cannot have been put after its end. Times that a database cannot store become its end."""
    try:
        return to_db(timestamp if 0 <= timestamp <= finished else finished)
    except (OverflowError, OSError, ValueError):
        return to_db(0)


def _small(number: float) -> int:
    return int(max(-(2**31), min(number, 2**31 - 1)))


def _clean(text: str, longest: int | None = None) -> str:
    return readable(text, longest).replace("\x00", "\ufffd")


def _loaded(text: str, default: object) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return default
