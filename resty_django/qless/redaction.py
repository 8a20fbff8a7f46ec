"""Redaction of jobs' arguments and results, in the admin and in the API alike."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.health import described
from resty_django.text import logger

from .tasks.registry import Runnable, find
from .tasks.replies import has_source

log = logger("resty_django.qless")

HIDDEN: Final = "[redacted]"
_SEPARATORS: Final = re.compile(r"[\W_]")
"""Characters that comparisons of names ignore."""
DEEPEST: Final = 40
"""Nesting depth of lists and objects; deeper values are hidden."""


def redacted(value: Any) -> Any:
    """Return a copy of a value without secrets.

    Values under a name that contains one of the words in `QLESS["REDACT"]` are hidden, at any depth. The function in
    `QLESS["REDACTOR"]` gets the copy and returns the value to show; if it fails, nothing is shown.
    """
    copy = without_secrets(value)
    path = conf.qless.redactor
    if path is None:
        return copy
    try:
        return import_string(path)(copy)
    except Exception as error:  # show nothing rather than something that it would have hidden
        log.warning("Job arguments are hidden, because REDACTOR %s failed: %s", path, described(error))
        return HIDDEN


class WithArguments(Protocol):
    """A job, or a recurring job."""

    @property
    def klass(self) -> str: ...
    @property
    def data(self) -> Any: ...


def redacted_job(job: WithArguments) -> Any:
    """Return the arguments of a job without secrets."""
    return redacted_arguments(job.klass, job.data)


def redacted_arguments(klass: str, data: Any) -> Any:
    """Return the arguments of a job of this class as `redacted` does, and hide a task's positional secrets too.

    If the function is unknown, all positional arguments are hidden. This also decides which edits of arguments are
    rejected (`admin.arguments`).
    """
    if isinstance(data, dict) and isinstance(data.get("args"), list):
        first = int(has_source(data))
        data = {**data, "args": _by_position(klass, data["args"], first, isinstance(data.get("kwargs"), dict))}
    return redacted(data)


def _by_position(klass: str, args: list[Any], first: int, of_task: bool) -> Any:
    """Hide positional arguments. `of_task`: the data have the shape of a task's, so if the task is unknown, all are
    hidden."""
    try:
        function = find(klass)
    except Exception:  # importing its module may raise anything
        return HIDDEN if of_task else args
    names = function.names if isinstance(function, Runnable) else ()
    if not names:
        return args
    secret_words = _words()
    return [
        HIDDEN if _is_secret(names[min(position, len(names) - 1)], secret_words) else argument
        for position, argument in enumerate(args, first)
    ]


def without_secrets(value: Any) -> Any:
    """Return a copy without the values that `QLESS["REDACT"]` names."""
    return _without(value, _words(), 0)


def _words() -> tuple[str, ...]:
    return _plain_words(tuple(conf.qless.redact))


@functools.cache
def _plain_words(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_plain, words))


def _is_secret(name: object, secret_words: tuple[str, ...]) -> bool:
    plain = _plain(name)
    return any(word in plain for word in secret_words)


def _without(value: Any, secret_words: tuple[str, ...], depth: int) -> Any:
    if depth > DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if _is_secret(key, secret_words) else _without(child, secret_words, depth + 1)
            for key, child in value.items()
        }
    if not isinstance(value, list | tuple):
        return value
    if all(isinstance(child, list | tuple) and len(child) == 2 and isinstance(child[0], str) for child in value):
        return [  # pairs, such as headers
            [name, HIDDEN if _is_secret(name, secret_words) else _without(child, secret_words, depth + 2)]
            for name, child in value
        ]
    return [_without(child, secret_words, depth + 1) for child in value]


def _plain(name: object) -> str:
    text = str(name).casefold()
    return _SEPARATORS.sub("", text) or text
