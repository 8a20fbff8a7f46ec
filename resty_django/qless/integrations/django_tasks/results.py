"""Results of Django's tasks: what their jobs store, and the `TaskResult` made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from traceback import format_exception
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ...clients.job import Job
from .compat import InvalidTask, Task, TaskError, TaskResult, TaskResultStatus
from .task import options_of

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class TaskRecord:
    """The data of a Django task's job: arguments, times and errors.

    `backend`: the alias of the backend that enqueued the task. `enqueued`, `run_after`, `expires` (no start after it),
    `started` (first run), `attempted` (latest run), `finished`: seconds since the epoch. `retried`: whether it runs
    again after an exception; None: not recorded by the earlier release that enqueued it. `errors`: one for each failed
    run, in the form of `TaskError`.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    enqueued: float | None = None
    run_after: float | None = None
    expires: float | None = None
    retried: bool | None = None
    started: float | None = None
    attempted: float | None = None
    finished: float | None = None
    errors: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TaskRecord:
        """Return the record in the data of a job. Raises `TypeError` if another program has put the job."""
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def to_data(self) -> dict[str, Any]:
        """Return the record as data of a job, without unknown times and without an empty list of errors."""
        return {
            name: value
            for name in self.__slots__
            if (value := getattr(self, name)) is not None and (value or name != "errors")
        }

    def add_error(self, error: BaseException) -> None:
        """Record that a run has failed."""
        kind = type(error)
        self.errors.append(
            {
                "exception_class_path": f"{kind.__module__}.{kind.__qualname__}",
                "traceback": "".join(format_exception(error)),
            }
        )

    def task_errors(self) -> list[TaskError]:
        return [TaskError(**error) for error in self.errors]


def result_from_job(task: Task[P, R], job: Job) -> TaskResult[P, R]:
    """Return the `TaskResult` of a task as its job describes it, without the return value."""
    record, status = TaskRecord.from_data(job.data), _status(job)
    errors = record.task_errors()
    runs = _runs(task, job, record)
    finished = record.finished if status in (TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL) else None
    if finished is not None and runs and finished < runs[-1]["when"]:  # of a run before an operator's retry
        finished = None
    if status == TaskResultStatus.FAILED and finished is None:  # its process was killed, or its workers died
        finished = job.failure.get("when")
        timed_out = str(job.failure.get("group", "")).endswith("-JobTimeout")
        path = "resty_django.qless.outcomes.JobTimeout" if timed_out else "resty_django.qless.errors.LostLock"
        errors.append(TaskError(exception_class_path=path, traceback=str(job.failure.get("message", ""))))
    started, attempted = record.started, record.attempted
    if runs:  # the record in the job does not contain the current run before its first heartbeat
        started = _start_time(runs[0], record) if started is None else started
        attempted = _start_time(runs[-1], record) if attempted is None else attempted
    return TaskResult(
        task=_as_enqueued(task, job, record),
        id=job.jid,
        status=status,
        enqueued_at=to_datetime(record.enqueued),
        started_at=to_datetime(started),
        last_attempted_at=to_datetime(attempted),
        finished_at=to_datetime(finished),
        args=record.args,
        kwargs=record.kwargs,
        backend=record.backend,
        errors=errors,
        worker_ids=[str(entry.get("worker", "")) for entry in runs],
    )


def to_datetime(at: float | None) -> datetime | None:
    """Return seconds since the epoch as a datetime, aware or naive according to USE_TZ; None beyond all years."""
    if at is None:
        return None
    try:
        aware = datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):  # written by another client
        return None
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def _status(job: Job) -> TaskResultStatus:
    match job.state:
        case "running":
            return TaskResultStatus.RUNNING
        case "failed":
            return TaskResultStatus.FAILED
        case "complete":
            return TaskResultStatus.SUCCESSFUL
        case _:  # waits for a worker, for its start time, or for a retry
            return TaskResultStatus.READY


def _runs(task: Task[..., Any], job: Job, record: TaskRecord) -> list[Mapping[str, Any]]:
    """Return the entries of the history for the runs of this record."""
    is_limited = options_of(task).rate is not None
    runs: list[Mapping[str, Any]] = []
    history, enqueued = job.raw_queue_history, int(record.enqueued or 0)  # the history has whole seconds
    earlier_failures = sum(map(_is_error, history)) - len(record.errors)
    is_put = is_earlier = False
    before = None
    for entry in history:
        match entry["what"]:
            case "popped":
                runs.append(entry)
            case "done" | "failed" if not is_put or entry["when"] <= enqueued:
                # perhaps an earlier job with the ID of a unique task
                earlier_failures -= _is_error(entry)
                is_earlier = not _is_error(entry) or earlier_failures >= 0
            case "put" if is_earlier:
                runs, is_earlier = [], False
            case "put" if is_limited and before == "popped":  # refused by the rate limit
                runs.pop()
        before = entry["what"]
        is_put = is_put or (before == "put" and entry["when"] >= enqueued)
    return runs


def _is_error(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of the history is a failure that its run has recorded, not the loss of its worker."""
    return entry["what"] == "failed" and "worker" in entry


def _start_time(run: Mapping[str, Any], record: TaskRecord) -> float:
    """Return when a run started. The history has whole seconds, but no run starts before the task was enqueued."""
    popped: float = run["when"]
    return popped if record.enqueued is None else max(record.enqueued, popped)


def _as_enqueued(task: Task[P, R], job: Job, record: TaskRecord) -> Task[P, R]:
    """Return the task with the options under which this job was enqueued."""
    changes: dict[str, Any] = {"backend": record.backend, "priority": int(job.priority)}
    if job.queue_name:
        changes["queue_name"] = job.queue_name
    if record.run_after is not None:
        changes["run_after"] = to_datetime(record.run_after)
    changes = {name: value for name, value in changes.items() if getattr(task, name) != value}
    try:
        return replace(task, **changes) if changes else task
    except (InvalidTask, ImproperlyConfigured):  # the settings have changed, or the job was moved
        return task
