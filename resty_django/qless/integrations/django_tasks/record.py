"""The job data of a Django task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Any, Final

from .compat import TaskError

TIMES: Final = ("enqueued", "run_after", "started", "attempted", "finished")


@dataclass(slots=True, kw_only=True)
class TaskRecord:
    """Arguments, times and errors of a task, stored in the data of its job.

    `backend`: its alias. `enqueued`, `run_after`, `started`, `attempted`, `finished`: seconds since the epoch.
    `errors`: exception class path and traceback of each failed run.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    enqueued: float | None = None
    run_after: float | None = None
    started: float | None = None
    attempted: float | None = None
    finished: float | None = None
    errors: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> TaskRecord:
        """Return the record in the data of a job. Raises `KeyError` if another program has put the job."""
        required = {name: data[name] for name in ("args", "kwargs", "backend")}
        times: dict[str, Any] = {name: data.get(name) for name in TIMES}
        return cls(**required, **times, errors=[*data.get("errors", ())])

    def save(self, data: dict[str, Any]) -> None:
        """Write the record into the data of a job, without unknown times and without an empty list of errors."""
        data.update(args=self.args, kwargs=self.kwargs, backend=self.backend)
        data.update({name: at for name in TIMES if (at := getattr(self, name)) is not None})
        if self.errors:
            data["errors"] = self.errors

    def add_error(self, error: BaseException) -> None:
        """Record that a run has failed."""
        kind = type(error)
        self.errors.append(
            {
                "exception_class_path": f"{kind.__module__}.{kind.__qualname__}",
                "traceback": "".join(format_exception(error)),
            }
        )

    def task_errors(self) -> list[Any]:
        """Return the errors in the form of Django's task results."""
        return [TaskError(**error) for error in self.errors]
