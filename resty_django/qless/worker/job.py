"""Jobs that the worker loop has reserved."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..clients.replies import JobRecord
from ..clients.serialization import read, read_list, text
from ..errors import UnreadableReply
from ..middleware.job import WorkerJob

if TYPE_CHECKING:
    from ..clients.client import Client
    from .loop import WorkerLoop

J = TypeVar("J", bound=WorkerJob)


class ReservedJob(WorkerJob):
    """A job of a worker loop, which runs in a thread of the loop's process."""

    __slots__ = ("_loop",)

    def __init__(self, client: Client, loop: WorkerLoop, record: JobRecord) -> None:
        super().__init__(client, record)
        self._loop = loop

    def limit(self, seconds: float, kill_after: float | EllipsisType | None = ...) -> None:
        self._loop.inbox.put(partial(self._loop.in_flight.limit, self, seconds, kill_after))

    def retire_worker(self) -> None:
        self._loop.inbox.put(self._loop.retire)


def read_jobs(reply: bytes, make_job: Callable[[JobRecord], J]) -> tuple[list[J], dict[str, UnreadableReply]]:
    """Return the jobs in the reply to a pop, and the errors of unreadable jobs by jid.

    Raises `UnreadableReply` if it is not a list of jobs.
    """
    try:
        return [make_job(record) for record in read_list(reply, JobRecord)], {}
    except UnreadableReply as error:
        try:
            records = [(str(record["jid"]), json.dumps(record)) for record in json.loads(text(reply))]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise error from None
    jobs: list[J] = []
    unreadable: dict[str, UnreadableReply] = {}
    for jid, encoded in records:
        try:
            jobs.append(make_job(read(encoded.encode(), JobRecord)))
        except (UnreadableReply, msgspec.ValidationError) as problem:
            unreadable[jid] = UnreadableReply(str(problem))
    return jobs, unreadable
