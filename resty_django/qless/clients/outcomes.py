"""Outcomes: callbacks, policies and groups, which act at the end of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from resty_django.suggestions import did_you_mean

from ..errors import InvalidArgument, UnreadableReply
from .put_options import PUT_OPTIONS, checked_options, class_name
from .serialization import as_list, decode, encode, read, reader

ENDS: Final = ("success", "failure", "complete")
"""The ends of a job for which callbacks can be registered; `complete` stands for any end."""
POLICIES: Final = ("fail", "skip", "release", "wait")
"""Actions of a job when another, for which it waits, has failed."""

_FIELDS: Final = reader(dict[str, str])


@dataclass(frozen=True, slots=True)
class Callback:
    """A job that is put at the end of another job or of a group.

    If the jid is taken at that time, `-2`, `-3` and so on is appended. `data` is a dict with at least one name, to
    which the core adds `outcome`; a string if the server has something else. `options`: `priority`, `tags`, `retries`,
    `delay`, `txid`, `outcome`.
    """

    jid: str
    queue: str
    klass: str
    data: dict[str, Any] | str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The callbacks, policies and groups of a job.

    `policy`: what the job does when any job for which it waits fails; `policies`: the same for single jids. `groups`:
    the IDs of the groups of which it is a member. `blocked`: the failed job because of which this one failed without
    a run.
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
        return [(end, callback) for end in ENDS for callback in getattr(self, end)]


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
        checked_options(f"{name}: ", **{option: value for option, value in options.items() if option in PUT_OPTIONS})
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
        if name in ENDS:
            fields[name] = callbacks_text(name, value)
        elif name == "policy" or name.startswith("policy:"):
            if value not in POLICIES:
                advice = did_you_mean(str(value), POLICIES, f"Use one of {', '.join(POLICIES)}.")
                raise InvalidArgument(f"outcome has the unknown policy {value!r}. {advice}")
            fields[name] = value
        elif name == "group":
            fields[name] = str(value)
        else:
            names = (*ENDS, "policy", "group")
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
    """Return the data of a callback, or the text if it is not JSON."""
    try:
        return decode(text)
    except UnreadableReply:
        return text


def read_outcome(reply: bytes | None) -> Outcome | None:
    """Return the reply of the command `outcome`; None if nothing follows from the job's end."""
    if reply is None:
        return None
    fields = read(reply, _FIELDS)
    return Outcome(
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
