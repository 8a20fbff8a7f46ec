"""Options of jobs: the checks of their values, and what the core expects. Pure.

The option `outcome` has callbacks, policies and groups, which act at the end of a job.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import UnionType
from typing import Any, Final, NamedTuple, TypedDict, TypeGuard
from uuid import UUID

import msgspec

from resty_django.text.suggestions import did_you_mean

from ..errors import InvalidArgument, UnreadableReply
from .serialization import as_list, decode, encode, read


def class_name(klass: object) -> str:
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


class JobOptions(TypedDict, total=False):
    """Options of `Queue.put`. None stands for an option that is not set.

    - `jid`: the ID of the job, instead of a random one. If a job with this ID exists, it is moved to
      the queue, with these data and options.
    - `delay`: seconds before the job starts to wait (default 0).
    - `priority`: jobs with higher numbers run first (default 0).
    - `tags`: a list of strings.
    - `retries`: how often it may run again (default 5).
    - `depends`: jobs that must be complete first, and groups: an ID, a result or a job, or several.
    - `outcome`: consequences of its end: callbacks (`success`, `failure`, `complete`), what it does if a job for
      which it waits fails (`policy`), and its `group`.
    """

    jid: str | None
    delay: float | None
    priority: float | None
    tags: Iterable[str] | None
    retries: int | None
    depends: object
    outcome: Mapping[str, Any] | None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job to put: its class, its data, and the options described by `JobOptions`."""

    klass: object
    data: object = None
    jid: str | None = None
    delay: float | None = None
    priority: float | None = None
    tags: Iterable[str] | None = None
    retries: int | None = None
    depends: object = None
    outcome: Mapping[str, Any] | None = None


class RecurringOptions(TypedDict, total=False):
    """Options of `Queue.recur`.

    - `jid`: the ID of the recurring job, instead of a random one. With it, the same job can be declared repeatedly, for
      example at each start of a site.
    - `offset`: seconds before the first job (default 0).
    - `priority`, `tags`, `retries`: options of the jobs.
    - `backlog`: maximum number of overdue jobs to create in addition to the latest (default 0: no maximum).
    """

    jid: str | None
    offset: float
    priority: float
    tags: Iterable[str]
    retries: int
    backlog: int


DEPENDS_PER_CALL: Final = 1000
"""Maximum number of dependencies in one call."""
DEPENDS_AT_ONCE: Final = 100
"""Number of dependencies that a call writes at once; `Client.tidy` and the workers write the rest."""


class _Rule(NamedTuple):
    """The values of an option: in words, their type, and for numbers their range."""

    text: str
    kind: type | UnionType = int | float
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
    "expires": _Rule("a number of seconds of at least 0, or a datetime", int | float | datetime, least=0),
    "priority": _Rule("a number"),
    "rate": _Rule("a rate such as '10/m', or a number greater than 0", above=0),
}


def check_names(function: str, options: Mapping[str, object], known: type) -> None:
    """Raise `TypeError` for an option that the TypedDict `known` does not have. `function`: a name for the message."""
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}.")


def checked_options(where: str = "", /, **options: object) -> dict[str, Any]:
    """Return the options as they are sent. None stands for an option that is not set.

    `where`: the beginning of messages. Raises `TypeError` for a value of the wrong type, and `InvalidArgument` for a
    number out of range.
    """
    return {name: None if value is None else checked_option(name, value, where) for name, value in options.items()}


def checked_option(option: str, value: object, where: str = "") -> Any:
    """Return the value of one option, as `checked_options` does."""
    rule = _RULES[option]
    result = value
    if rule.kind is list:
        result = _ids(value) if option == "depends" else _texts(value)
    if isinstance(result, bool) or not isinstance(result, rule.kind):
        hint = f" Write {option}=[{value!r:.80}]." if rule.kind is list and isinstance(value, str) and value else ""
        raise TypeError(f"{where}{option}= must be {rule.text}, not {value!r:.80}.{hint}")
    if isinstance(result, int | float) and not (rule.least <= result <= sys.float_info.max and result > rule.above):
        raise InvalidArgument(f"{where}{option}= must be {rule.text}, not {value!r:.80}.")
    return result


def _texts(value: object) -> list[str] | None:
    """Return a list of strings; None if the value is not a list of texts, whole numbers or UUIDs."""
    if not _is_several(value):
        return None
    elements = [*value]
    are_texts = all(isinstance(element, str | int | UUID) and not isinstance(element, bool) for element in elements)
    return [*map(str, elements)] if are_texts else None


def _ids(value: object) -> list[str] | None:
    """Return a list of IDs; None if the value is neither an ID, an object with one, nor a list of these."""
    ids = [*map(_id, value)] if _is_several(value) and not _id(value) else [_id(value)]
    return ids if all(ids) else None


def _is_several(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _id(value: object) -> str:
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
        "priority",
        0 if priority is None else priority,
        "tags",
        list_text(tags) if tags else "[]",
        "retries",
        5 if retries is None else retries,
        "depends",
        list_text(depends) if depends else "[]",
    )


JOB_ENDS: Final = ("success", "failure", "complete")
"""The ends of a job for which callbacks can be registered; `complete` stands for any end."""
POLICIES: Final = ("fail", "skip", "release", "wait")
"""Actions of a job when another, for which it waits, has failed."""


@dataclass(frozen=True, slots=True)
class Callback:
    """A job that is put at the end of another job or of a group.

    If the jid is taken then, the core appends `-2`, `-3` and so on. `data` is a dict with at least one name, to which
    the core adds `outcome`; a string if the server has something else. `options`: `priority`, `tags`, `retries`,
    `delay`, `txid`, `request_id`, `outcome`.
    """

    jid: str
    queue: str
    klass: str
    data: dict[str, Any] | str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The callbacks, policies and groups of a job.

    `policy`: what the job does when any job for which it waits fails; `policies`: the same for single jids. `groups`:
    the IDs of its groups. `blocked`: the failed job because of which this one failed without a run.
    """

    success: tuple[Callback, ...] = ()
    failure: tuple[Callback, ...] = ()
    complete: tuple[Callback, ...] = ()
    policy: str = "wait"
    policies: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    blocked: str | None = None

    def callbacks(self) -> list[tuple[str, Callback]]:
        """Return all callbacks, each with its end: `success`, `failure` or `complete`."""
        return [(end, callback) for end in JOB_ENDS for callback in getattr(self, end)]


def callbacks_text(name: str, callbacks: Iterable[Callback | Sequence[Any]]) -> str:
    """Return callbacks as JSON for the core.

    Each is a `Callback`, or a list `[jid, queue, klass, data, options]`, whose data may be JSON already, and whose
    options may be omitted. Raises `InvalidArgument`.
    """
    if isinstance(callbacks, str | Mapping | Callback) or not isinstance(callbacks, Iterable):
        raise InvalidArgument(f"{name} must be a list of callbacks, not a {type(callbacks).__qualname__}.")
    rows: list[list[Any]] = []
    for callback in callbacks:
        if isinstance(callback, Callback):
            parts = [callback.jid, callback.queue, callback.klass, callback.data, callback.options]
        else:
            parts = list(callback) if isinstance(callback, list | tuple) else []
        if len(parts) not in (4, 5) or not all(isinstance(text, str) and text for text in parts[:2]):
            raise InvalidArgument(
                f"{name} contains {callback!r}. A callback is a list [jid, queue, klass, data, options]."
            )
        data = parts[3] if isinstance(parts[3], str) else encode(parts[3], f"{name} data").decode()
        if not data.startswith('{"') or not isinstance(_data(data), dict):
            raise InvalidArgument(f"{name}: the data of a callback must be a dict with at least one name, not {data}.")
        options = parts[4] if len(parts) == 5 and isinstance(parts[4], Mapping) else {}  # the core refuses other types
        known = ("priority", "tags", "retries", "depends", "delay")
        checked_options(f"{name}: ", **{option: value for option, value in options.items() if option in known})
        rows.append([*parts[:2], class_name(parts[2]), data, *parts[4:]])
    return msgspec.json.encode(rows).decode()


def outcome_fields(outcome: Mapping[str, Any]) -> dict[str, str]:
    """Return the option `outcome` of a put as the core expects it: an object of texts. Raises `InvalidArgument`.

    Names: `success`, `failure` and `complete` with lists of callbacks; `policy`, and `policy:<jid>`; `group`.
    """
    if not isinstance(outcome, Mapping):
        raise InvalidArgument(f"outcome must be a dict, not a {type(outcome).__qualname__}.")
    fields: dict[str, str] = {}
    for name, value in outcome.items():
        if name in JOB_ENDS:
            fields[name] = callbacks_text(name, value)
        elif name == "policy" or name.startswith("policy:"):
            if value not in POLICIES:
                advice = did_you_mean(str(value), POLICIES, f"Use one of {', '.join(POLICIES)}.")
                raise InvalidArgument(f"outcome has the unknown policy {value!r}. {advice}")
            fields[name] = value
        elif name == "group":
            fields[name] = str(value)
        else:
            names = (*JOB_ENDS, "policy", "group")
            advice = did_you_mean(str(name), names, f"Its fields are {', '.join(names)}.")
            raise InvalidArgument(f"outcome has the unknown field {name!r}. {advice}")
    return fields


def read_callbacks(text: str | None) -> tuple[Callback, ...]:
    """Return the callbacks in a JSON list of the core. Raises `UnreadableReply` for anything else."""
    rows = as_list(decode(text)) if text else []
    return tuple(
        Callback(row[0], row[1], row[2], _data(row[3]), row[4] if len(row) > 4 and isinstance(row[4], dict) else {})
        for row in rows
    )


def _data(text: str) -> Any:
    """Return the data of a callback; the text itself if it is not JSON."""
    try:
        return decode(text)
    except UnreadableReply:
        return text


def read_outcome(reply: bytes | None) -> JobOutcome | None:
    """Return the reply of the command `outcome`; None if nothing follows from the job's end."""
    if reply is None:
        return None
    fields = read(reply, dict[str, str])
    return JobOutcome(
        success=read_callbacks(fields.get("success")),
        failure=read_callbacks(fields.get("failure")),
        complete=read_callbacks(fields.get("complete")),
        policy=fields.get("policy", "wait"),
        policies={
            name.removeprefix("policy:"): policy for name, policy in fields.items() if name.startswith("policy:")
        },
        groups=tuple(fields.get("group", "").split()),
        blocked=fields.get("blocked"),
    )
