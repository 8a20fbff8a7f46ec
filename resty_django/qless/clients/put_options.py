"""Options of jobs: the checks of their values, and what the core expects. Pure."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from ..errors import InvalidArgument


def class_name(klass: Any) -> str:
    """Return the name under which a job class is put: a string unchanged, or the dotted path of a class or function."""
    if isinstance(klass, str):
        return klass
    module, name = getattr(klass, "__module__", None), getattr(klass, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise InvalidArgument(
            f"{klass!r} cannot be the class of a job. "
            "Pass a dotted path, or a class or function at the top level of a module."
        )
    return f"{module}.{name}"


PUT_OPTIONS: Final = frozenset(("priority", "tags", "retries", "depends", "delay"))
"""Options of a job among the fields of a `JobSpec` or a callback."""

DEPENDS_PER_CALL: Final = 1000
"""Maximum number of dependencies in one call."""
DEPENDS_AT_ONCE: Final = 100
"""Number of dependencies that a call writes at once; `Client.tidy` and the workers write the rest."""


class _Rule(NamedTuple):
    """The values of an option: in words, their type, and for numbers their range."""

    text: str
    kind: Any = int | float
    least: float = -sys.float_info.max
    above: float = -math.inf


_RULES: Final = {
    **dict.fromkeys(("cron", "jid", "queue", "task_id"), _Rule("a text", str)),
    **dict.fromkeys(("eta", "run_after"), _Rule("a datetime", datetime)),
    **dict.fromkeys(("aliases", "tags", "unique"), _Rule("a list of texts", list)),
    **dict.fromkeys(("backlog", "max_retries", "retries"), _Rule("a whole number of at least 0", int, least=0)),
    **dict.fromkeys(
        ("backoff", "countdown", "delay", "offset", "result_ttl"), _Rule("a number of seconds of at least 0", least=0)
    ),
    **dict.fromkeys(("every", "interval", "timeout"), _Rule("a number of seconds greater than 0", above=0)),
    "depends": _Rule("an ID, a result or a job, or a list of them", list),
    "expires": _Rule("a number of seconds of at least 0, or a datetime", least=0),
    "priority": _Rule("a number"),
    "rate": _Rule("a rate such as '10/m', or a number greater than 0", above=0),
}


def checked_options(where: str = "", /, **options: Any) -> dict[str, Any]:
    """Return the options, in the form in which they are sent. None stands for an option that is not set.

    `where`: the beginning of messages. Raises `TypeError` for a value of the wrong type, and `InvalidArgument` for a
    number out of range.
    """
    return {name: None if value is None else _checked(where, name, value) for name, value in options.items()}


def _checked(where: str, option: str, value: Any) -> Any:
    rule = _RULES[option]
    result = _ids(value) if option == "depends" else _texts(value) if rule.kind is list else value
    message = f"{where}{option}= must be {rule.text}, not {value!r:.80}."
    if isinstance(result, bool) or not isinstance(result, rule.kind):
        hint = f" Write {option}=[{value!r:.80}]." if rule.kind is list and isinstance(value, str) and value else ""
        raise TypeError(message + hint)
    if isinstance(result, int | float) and not (rule.least <= result <= sys.float_info.max and result > rule.above):
        raise InvalidArgument(message)
    return result


def _texts(value: Any) -> list[str] | None:
    elements = [*value] if _is_several(value) else [None]
    are_texts = all(isinstance(element, str | int | UUID) and not isinstance(element, bool) for element in elements)
    return [*map(str, elements)] if are_texts else None


def _ids(value: Any) -> list[str] | None:
    ids = [*map(_id, value)] if _is_several(value) and not _id(value) else [_id(value)]
    return ids if all(ids) else None


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _id(value: Any) -> str:
    """Return the ID of a job or a group; empty if it is neither that nor an object with one."""
    jid = str(value) if isinstance(value, UUID) else getattr(value, "jid", getattr(value, "id", value))
    return jid if isinstance(jid, str) else ""


def list_text(values: Iterable[str]) -> str:
    """Return a list of strings as JSON; bytes that are not UTF-8 are sent unchanged."""
    elements = [*map(str, values)]
    try:
        return msgspec.json.encode(elements).decode()
    except UnicodeEncodeError:
        return json.dumps(elements, ensure_ascii=False)


def options_of(
    priority: float | None, tags: Iterable[str] | None, retries: float | None, depends: Iterable[str] | None
) -> tuple[Any, ...]:
    """Return all four options as every client sends them. Defaults: 0, no tags, 5, no dependencies."""
    return (
        *("priority", 0 if priority is None else priority),
        *("tags", "[]" if not tags else list_text(tags)),
        *("retries", 5 if retries is None else retries),
        *("depends", "[]" if not depends else list_text(depends)),
    )
