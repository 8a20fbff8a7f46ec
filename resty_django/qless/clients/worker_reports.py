"""Reports of workers, and requests to them: quiet, resume, stop, scale, stacks. Pure.

A report is a JSON text that the worker writes and that any client may read. The reading side accepts only the expected
types and bounded lengths, since any program with access to the server may have written the text.
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

import msgspec

from .serialization import LuaList, as_list, read_list

QUIET, RESUME, STOP, SCALE, STACKS = "quiet", "resume", "stop", "scale", "stacks"
WORKERS_PER_CALL: Final = 100
"""Maximum number of workers whose reports one call returns."""
MAX_SLOTS: Final = 10_000

LATE_AFTER_SECONDS: Final = 60.0
"""Minimum run time of a late job."""


class ReportedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker runs. `seconds`: since it was popped; `usual`: time of other jobs of its class, if known."""

    jid: str
    klass: str
    seconds: float
    usual: float | None = None

    def is_late(self, age: float = 0.0) -> bool:
        """Return whether the job, reported `age` seconds ago, runs for much longer than its class usually does."""
        return is_late(self.seconds + age, self.usual)


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the worker has not confirmed yet. `at`: seconds since the epoch; `slots`: of "scale"."""

    id: int
    action: str
    at: float
    slots: int | None = None


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a report. `state`: running, quiet or stopping. `started`: seconds since the epoch."""

    host: str
    pid: int
    started: float
    state: str
    slots: int
    max_slots: int
    used: int
    pool: str
    package: str
    python: str
    django: str
    release: str = ""
    grace: float | None = None
    jobs: list[ReportedJob] = []


class WorkerReport(_Report, frozen=True, kw_only=True):
    """The last report of a worker, received `age` seconds ago, and the requests that it has not confirmed.

    `state`: running, quiet or stopping. `started`: seconds since the epoch. `pool`: threads, processes or celery.
    `package`: the version of resty_django. `release`: the setting `RELEASE` of the site. `used`: slots in use.
    `grace`: seconds that its jobs have after a request to stop. `jobs`: up to 10 of its jobs, late ones first, then
    those that have run longest.
    """

    name: str
    age: float
    requests: tuple[WorkerRequest, ...] = ()

    @property
    def late_job(self) -> ReportedJob | None:
        """The job that has run longest of those that are late; None if no job is."""
        return max((job for job in self.jobs if job.is_late(self.age)), key=lambda job: job.seconds, default=None)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A frame of a stack. `source`: its line of code, empty if unknown."""

    path: str
    line: int
    function: str
    source: str = ""


class JobStack(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of a running job, outermost frame first; empty if it has not begun or did not answer.

    `jid`: empty for a thread of a worker whose interpreter is blocked, since its job is unknown then.
    """

    jid: str
    klass: str
    seconds: float
    frames: list[Frame]


class WorkerStacks(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of a worker's jobs. `id`: the request; `left_out`: number of jobs without a stack here."""

    id: int
    at: float
    jobs: list[JobStack]
    left_out: int = 0


class _Entry(msgspec.Struct):
    name: str
    age: float
    report: str
    requests: LuaList[str]


_Kind = TypeVar("_Kind")
_Text: TypeAlias = bytes | str


def is_late(seconds: float, usual: float | None) -> bool:
    """Return whether a job that runs for `seconds` is late: at least a minute, and 10 times as long as usual.

    `usual`: seconds that jobs of its class take; None if none of them has been completed: it is late after an hour.
    """
    return seconds >= (3600.0 if usual is None else max(LATE_AFTER_SECONDS, 10 * usual))


def reports_of(reply: bytes) -> list[WorkerReport]:
    """Return the reports in a reply of `worker.reports`, without those that are not as expected."""
    reports = []
    for entry in read_list(reply, _Entry):
        report = _decoded(entry.report, _Report)
        if report is not None:
            requests = [request for text in as_list(entry.requests) if (request := request_of(text)) is not None]
            fields = {name: getattr(report, name) for name in _Report.__struct_fields__}
            reports.append(WorkerReport(name=entry.name, age=entry.age, requests=tuple(requests), **fields))
    return reports


def request_of(text: _Text) -> WorkerRequest | None:
    """Return a request; None if it is not one that a worker may follow."""
    if len(text) > 1000:
        return None
    request = _decoded(text, WorkerRequest)
    if request is None or request.action not in (QUIET, RESUME, STOP, SCALE, STACKS):
        return None
    if request.action == SCALE and (request.slots is None or not 1 <= request.slots <= MAX_SLOTS):
        return None
    return request


def stacks_of(reply: bytes | None) -> WorkerStacks | None:
    """Return the stacks in a reply of `worker.stacks`; None if there are none, or not as expected."""
    return None if reply is None else _decoded(reply, WorkerStacks)


def encode_report(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode(fields)


def _decoded(text: _Text, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
