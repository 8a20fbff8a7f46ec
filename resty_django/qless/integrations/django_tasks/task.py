"""The class of Django's tasks on our backends: `task_class`, from which Django 6.1 takes the options of its `@task`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Self, TypedDict, Unpack

from django.utils.functional import cached_property

from ...clients.put_options import checked_options
from ...tasks.canvas import check_callbacks
from ...tasks.message import Parameters
from ...tasks.options import Callbacks, TaskOptions, check_keywords
from .compat import InvalidTask, Task, normalize_json


class UsingKeywords(TypedDict, total=False):
    """Keywords of `QlessTask.using`: Django's own, and the options that are sent with the job."""

    priority: int | None
    queue_name: str | None
    run_after: datetime | None
    backend: str | None
    retries: int | None
    unique: bool | Sequence[str] | None
    tags: Sequence[str] | None
    expires: float | datetime | None
    on_success: Callbacks
    on_failure: Callbacks
    on_complete: Callbacks


@dataclass(frozen=True, kw_only=True)  # no slots: with them, subclasses of Python 3.13 could not call super()
class QlessTask(Task):  # type: ignore[type-arg]
    """A Django task with options of jobs. None: not set.

    - `retries`: how often it runs again after an exception or the death of its worker. None: the backend's RETRIES.
    - `backoff`: seconds before the first retry after an exception, doubled for each further retry; or a list of the
      seconds before each. None: the backend's BACKOFF.
    - `timeout`: maximum duration of a run in seconds.
    - `unique`: enqueue nothing while a job of this backend with the same arguments waits or runs. True, or the names of
      the arguments to compare.
    - `rate`: rate limit across all workers: "10/m", or the name of a policy of `resty_django.limits`.
    - `tags`: tags of its jobs.
    - `expires`: seconds after `enqueue`, or a time, after which the task fails instead of starting.
    - `on_success`, `on_failure`, `on_complete`: tasks of `resty_django.qless`, or their signatures, to enqueue at its
      end, with the `TaskOutcome` as the first argument.

    Raises `TypeError` or `InvalidArgument` for a wrong option, and `InvalidTask` for any option on a backend whose
    tasks have none.
    """

    retries: int | None = None
    backoff: float | Sequence[float] | None = field(default=None, hash=False)
    timeout: float | None = None
    unique: bool | Sequence[str] | None = field(default=None, hash=False)
    rate: str | float | None = None
    tags: Sequence[str] | None = field(default=None, hash=False)
    expires: float | datetime | None = None
    on_success: Callbacks = field(default=None, hash=False)
    on_failure: Callbacks = field(default=None, hash=False)
    on_complete: Callbacks = field(default=None, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._options:
            return
        if not issubclass(self.get_backend().task_class, QlessTask):
            raise InvalidTask(
                f"{self.module_path}: the backend {self.backend!r} does not support {next(iter(self._options))}=. "
                "Use QlessBackend, or in tests the backends of resty_django.qless.testing.django_tasks."
            )
        _ = self.job_options, self._parameters  # which check them

    def using(self, **changes: Unpack[UsingKeywords]) -> Self:
        """Return a copy with other options: Django's, and those that are sent with the job. None: unchanged.

        Raises `TypeError` for `backoff`, `timeout` and `rate`, which workers take from the task in its module.
        """
        check_keywords("using()", changes, UsingKeywords.__annotations__)
        values: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **values)

    @cached_property
    def _options(self) -> dict[str, Any]:
        """The options that are set."""
        return {name: value for name in OPTION_NAMES if (value := getattr(self, name)) is not None}

    @cached_property
    def job_options(self) -> TaskOptions:
        """The options except `expires`, checked."""
        values = dict(self._options)
        if not values:
            return NO_TASK_OPTIONS
        path = self.module_path
        checked_options(f"{path}: ", expires=values.pop("expires", None))
        options = TaskOptions(**values).checked(path)
        options.retry_policy(path)  # checks the backoff
        check_callbacks(options)
        return options

    @cached_property
    def _parameters(self) -> Parameters | None:
        """The parameters that make the ID of a unique job."""
        if not self.unique:
            return None
        name = f"{self.backend}:{self.module_path}"  # one backend does not find the results of another
        return Parameters(self.func, self.module_path, name, self.takes_context, self.unique)

    def unique_id(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return the ID of the job with these arguments; None unless the task is `unique`. Raises `TypeError`."""
        if self._parameters is None:
            return None
        values: Any = normalize_json([args, kwargs])
        self._parameters.check(*values)
        return self._parameters.digest(*values)


OPTION_NAMES: Final = tuple(QlessTask.__annotations__)
"""The options that Django's tasks do not have."""
NO_TASK_OPTIONS: Final = TaskOptions()


def options_of(task: Task[..., Any]) -> TaskOptions:
    """Return the options of any task; a task made for another backend has none."""
    return task.job_options if isinstance(task, QlessTask) else NO_TASK_OPTIONS
