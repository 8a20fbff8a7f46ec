"""What a task puts into a job, and takes out of it again.

The data of the job is `{"args": [...], "kwargs": {...}}`. In addition it may have `expires`, a time, and `from`: the
jid of a job whose result is the first argument, or a list of jids, whose results are that as a list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from . import eager
from .call import Request, Steps
from .clients import Client
from .errors import QlessError, UnreadableReply
from .job import Job
from .texts import decode, read, reader

Source: TypeAlias = "str | list[str] | None"
"""The job or jobs whose results are the first argument."""


class TaskExpired(QlessError):
    """The task was not run: it waited for longer than its `expires` allows."""


class ResultGone(QlessError):
    """The result of a job is not there any more, or was never kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A job that is to be put. `when`: seconds since the epoch (None: at once); `options`: those of `put`."""

    queue: str
    jid: str
    klass: str
    data: str | bytes
    when: float | None
    options: tuple[Any, ...]

    def request(self, client: Client) -> Request:
        delay = 0 if self.when is None else max(0.0, self.when - client.clock())
        return ("put", client.worker_name, self.queue, self.jid, self.klass, self.data, delay, *self.options)


class Call(NamedTuple):
    """With what a task is called."""

    args: list[Any]
    kwargs: dict[str, Any]


class _Kept(msgspec.Struct):
    state: str
    result: str | bool


_KEPT = reader(_Kept)


def data_of(args: Sequence[Any], kwargs: Mapping[str, Any], expires: float | None, source: Source) -> dict[str, Any]:
    """The data of a job."""
    data: dict[str, Any] = {"args": args, "kwargs": kwargs}
    if expires is not None:
        data["expires"] = expires
    if source is not None:
        data["from"] = source
    return data


def call_of(job: Job) -> Steps[Call]:
    """With what the task of a job is to be called. Raises `TaskExpired`, `ResultGone`, `UnreadableReply`."""
    data = job.data
    try:
        args, kwargs, expires, source = data["args"], data["kwargs"], data.get("expires"), data.get("from")
        found = Call([*args], {**kwargs})
    except (TypeError, KeyError, AttributeError):
        raise UnreadableReply(
            f'The data of {job.jid} is not that of a task, {{"args": [...], "kwargs": {{...}}}}. '
            "Put it with delay() or apply_async()."
        ) from None
    if expires is not None and job.client.clock() > expires:
        raise TaskExpired(f"{job.klass} was not run: its time to be run expired before a worker was free.")
    if isinstance(source, str):
        found.args.insert(0, (yield from _result(source)))
    elif source is not None:
        results = []
        for jid in source:
            results.append((yield from _result(jid)))
        found.args.insert(0, results)
    return found


def _result(jid: str) -> Steps[Any]:
    if jid in eager.outcomes:
        return eager.outcomes[jid].get()
    reply = yield "result", jid
    kept = None if reply is None else read(reply, _KEPT)
    if kept is None or not isinstance(kept.result, str):
        raise ResultGone(
            f"The result of {jid} is gone, which is the first argument here. Keep results for longer, or use si()."
        )
    return decode(kept.result)


__all__ = ["Call", "Message", "ResultGone", "Source", "TaskExpired", "call_of", "data_of"]
