"""Redaction of jobs' arguments and results, in the admin and in the API alike."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from django.utils.module_loading import import_string

from resty_django.conf import conf
from resty_django.health import described
from resty_django.text import logger

from .job_classes import Runnable, find, has_source

log = logger("resty_django.qless")

HIDDEN: Final = "[redacted]"
UNNAMED: Final = "[redacted: unknown class. Add its module to QLESS MODULES, or pass arguments by name.]"
"""Stands for positional arguments of a class whose parameters this process does not know."""
MARKS: Final = (HIDDEN, UNNAMED)
_POSITIONAL: Final = frozenset({"args", "arguments"})
"""Names of lists of positional arguments, in the data of tasks and of other programs."""
_SEPARATORS: Final = re.compile(r"[\W_]")
"""Characters that comparisons of names ignore."""


def redacted(value: object) -> Any:
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
    def data(self) -> object: ...


def redacted_job(job: WithArguments) -> Any:
    """Return the arguments of a job without secrets."""
    return redacted_arguments(job.klass, job.data)


def redacted_arguments(klass: str, data: object) -> Any:
    """Return the arguments of a job of this class as `redacted` does, and hide a task's positional secrets too.

    If this process does not know the class, `UNNAMED` replaces all positional arguments, except objects in a list that
    is not a task's. If `QLESS["REDACT"]` is empty, nothing is hidden by position. This also decides which edits of
    arguments are rejected (`admin.arguments`).
    """
    if _words() and not (isinstance(data, dict) and _POSITIONAL.isdisjoint(data)):
        data = _by_position(klass, data)
    return redacted(data)


def _by_position(klass: str, data: object) -> object:
    """Hide positional arguments whose parameter is secret or unknown."""
    try:
        target = find(klass)
    except Exception:  # importing its module may raise anything
        return _without_unnamed(data)
    signature = target.call_signature if isinstance(target, Runnable) else None
    if signature is None or not isinstance(data, dict) or not isinstance(data.get("args"), list):
        return data
    parameters = [each for each in signature.parameters.values() if each.kind <= each.VAR_POSITIONAL]
    names = [parameter.name for parameter in parameters]
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        names += names[-1:] * len(data["args"])
    secret_words = _words()
    args = [
        HIDDEN if position >= len(names) or _is_secret(names[position], secret_words) else argument
        for position, argument in enumerate(data["args"], int(has_source(data)))
    ]
    return {**data, "args": args}


def _without_unnamed(data: object) -> object:
    """Hide the positional arguments of an unknown class: of a task, or of another program."""
    if not isinstance(data, dict):
        return _unnamed(data)
    if isinstance(data.get("args"), list) and isinstance(data.get("kwargs"), dict):
        return {**data, "args": UNNAMED}
    return {name: _unnamed(value) if name in _POSITIONAL else value for name, value in data.items()}


def _unnamed(value: object) -> object:
    if isinstance(value, list):
        return [member if isinstance(member, dict) else UNNAMED for member in value]
    return value if value is None or isinstance(value, dict) else UNNAMED


def without_secrets(value: object) -> Any:
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


def _without(value: object, secret_words: tuple[str, ...], depth: int) -> object:
    if depth > 40:  # nested lists and objects
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
    """Return a name as comparisons see it: without case and separators."""
    text = str(name).casefold()
    return _SEPARATORS.sub("", text) or text
