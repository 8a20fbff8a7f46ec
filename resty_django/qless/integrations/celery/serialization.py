"""Arguments and results of Celery tasks as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from kombu.utils.json import dumps, loads

from ...clients.job import Job
from ...clients.serialization import encode, is_finite
from ...errors import InvalidArgument

T = TypeVar("T")


class RegisteredTask(Protocol):
    """The attributes of a Celery task that this package uses."""

    name: str
    typing: bool
    acks_late: bool
    expires: float | datetime | None
    request: object
    run: Callable[..., object]
    apply_async: Callable[..., object]


def check(task: RegisteredTask, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Raise `TypeError` if the task does not accept these arguments."""
    check: Callable[..., Any] | None = getattr(task, "__header__", None)
    if task.typing and check is not None:
        try:
            check(*args, **(kwargs or {}))
        except TypeError as error:
            raise TypeError(f"{task.name}: invalid arguments: {error}.") from None


def dumped(data: dict[str, Any]) -> str:
    """Return Celery's JSON, which keeps the types of times, UUIDs, decimals and similar values."""
    try:
        return str(dumps(data))  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"The arguments of the task must be JSON: {error}.") from None


def loaded(job: Job) -> dict[str, Any]:
    """Return the data of a job from Celery's JSON."""
    return dict(loads(job.raw_data))  # type: ignore[no-untyped-call]


def as_json(job: Job, value: T) -> T | None:
    """Return the result, or None if JSON cannot represent its type: the task has succeeded anyway.

    Raises `InvalidArgument` for NaN and infinity, which would silently change.
    """
    try:
        encode(value, "result")
    except InvalidArgument:
        if not is_finite(value):
            raise
        return None
    return value
