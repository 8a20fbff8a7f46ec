"""Arguments and results of Celery's tasks, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kombu.utils.json import dumps, loads

from ..errors import InvalidArgument
from ..job import Job
from ..texts import encode


def check(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    check: Callable[..., Any] | None = getattr(task, "__header__", None)
    if task.typing and check is not None:
        try:
            check(*args, **(kwargs or {}))
        except TypeError as error:
            raise TypeError(f"{task.name} cannot be called so: {error}.") from None


def dumped(data: dict[str, Any]) -> str:
    """JSON as Celery makes it, in which times, UUIDs and the like stay what they are."""
    try:
        return str(dumps(data))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"The arguments of the task must be JSON: {error}.") from None


def loaded(job: Job) -> dict[str, Any]:
    return dict(loads(job.raw_data))  # type: ignore[no-untyped-call]


def as_json(job: Job, value: Any) -> Any:
    """The result, or None where it is no JSON: the task has ended well all the same."""
    try:
        encode(value)
    except InvalidArgument:
        return None
    return value


__all__ = ["as_json", "check", "dumped", "loaded"]
