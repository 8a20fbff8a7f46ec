"""What people see of the arguments and results of jobs: secrets are left out, in the admin and in the API alike."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.health import described

from .classes import Performer, find

log = logging.getLogger("resty_django.qless")

HIDDEN: Final = "[redacted]"
DEEPEST: Final = 40
"""Lists and objects in each other; what is deeper is left out."""


def redacted(value: Any) -> Any:
    """A copy of the arguments of a job as they may be shown.

    What is under a name with one of the words in `QLESS["REDACT"]` is hidden, at any depth. The function that
    `QLESS["REDACTOR"]` names gets the copy and gives what is shown; where it fails, nothing is.
    """
    found = without_secrets(value)
    path = conf.qless.redactor
    if path is None:
        return found
    try:
        return import_string(path)(found)
    except Exception as error:  # what it would have hidden is not shown
        log.warning("arguments of jobs are not shown, since REDACTOR %s failed: %s", path, described(error))
        return HIDDEN


class WithArguments(Protocol):
    """A job, or a recurring job."""

    @property
    def klass(self) -> str: ...
    @property
    def data(self) -> Any: ...


def redacted_job(job: WithArguments) -> Any:
    """The arguments of a job as they may be shown."""
    return redacted_arguments(job.klass, job.data)


def redacted_arguments(klass: str, data: Any) -> Any:
    """Those of a job of this class: as `redacted`, and of a task also those that were given by position.

    Where the function is unknown whose arguments they are, none of these is shown.
    """
    if isinstance(data, dict) and isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict):
        data = {**data, "args": _by_position(klass, data["args"], 1 if "from" in data else 0)}
    return redacted(data)


def _by_position(klass: str, args: list[Any], first: int) -> Any:
    try:
        found = find(klass)
    except Exception:  # whatever the import of its module raises
        return HIDDEN
    names = found.names if isinstance(found, Performer) else ()
    if not names:
        return args
    words = _words()
    return [
        HIDDEN if any(word in _plain(names[min(place, len(names) - 1)]) for word in words) else each
        for place, each in enumerate(args, first)
    ]


def without_secrets(value: Any) -> Any:
    """A copy without what `QLESS["REDACT"]` names."""
    return _without(value, _words(), 0)


def _words() -> tuple[str, ...]:
    return tuple(_plain(word) for word in conf.qless.redact)


def _without(value: Any, words: tuple[str, ...], depth: int) -> Any:
    if depth > DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if any(word in _plain(key) for word in words) else _without(each, words, depth + 1)
            for key, each in value.items()
        }
    return [_without(each, words, depth + 1) for each in value] if isinstance(value, list | tuple) else value


def _plain(name: object) -> str:
    return str(name).casefold().replace("-", "_")


__all__ = ["HIDDEN", "redacted", "redacted_arguments", "redacted_job", "without_secrets"]
