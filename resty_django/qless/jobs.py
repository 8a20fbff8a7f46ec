"""Jobs wherever they are: `client.jobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from .call import Steps, twins
from .job import Job, job_list
from .recurring import RecurringJob, of_reply
from .texts import as_list, decode, read, reader, texts
from .values import Failures, Found, Jids, JobRecord, Result, Tracked

if TYPE_CHECKING:
    from .clients import Client


class _Jids(msgspec.Struct):
    jobs: list[str] | dict[str, Any]
    total: int = 0
    cursor: str = ""


class _Tracked(msgspec.Struct):
    jobs: list[JobRecord] | dict[str, Any]
    expired: list[str] | dict[str, Any]


class _Result(msgspec.Struct):
    jid: str
    state: str
    result: str | bool
    progress: float | bool
    message: str | bool
    at: float | bool


_PART: Final = reader(_Jids)
_TRACKED: Final = reader(_Tracked)
_RESULT: Final = reader(_Result)
_GROUPS: Final = reader(dict[str, int])
_JOB: Final = reader(JobRecord)


class Jobs:
    """See the module."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _get(self, jid: str) -> Steps[Job | RecurringJob | None]:
        """The job, else the recurring job, with this jid; None: there is neither."""
        reply = yield "get", jid
        if reply is not None:
            return Job(self.client, read(reply, _JOB))
        return of_reply(self.client, (yield "recur.get", jid))

    get, aget = twins(_get)

    def __getitem__(self, jid: str) -> Job | RecurringJob | None:
        return self.get(jid)

    def _multiget(self, *jids: str) -> Steps[list[Job]]:
        """The jobs with these jids, as far as there are."""
        return job_list(self.client, (yield "multiget", *jids)) if jids else []

    multiget, amultiget = twins(_multiget)

    def _complete(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """The jids of complete jobs, newest first."""
        return texts((yield "jobs", "complete", offset, count))

    complete, acomplete = twins(_complete)

    def _tracked(self) -> Steps[Tracked]:
        """The tracked jobs."""
        found = read((yield ("track",)), _TRACKED)
        return Tracked([Job(self.client, each) for each in as_list(found.jobs)], as_list(found.expired))

    tracked, atracked = twins(_tracked)

    def _tagged(self, tag: str, offset: int = 0, count: int = 25) -> Steps[Jids]:
        """The jids of jobs with a tag, oldest tagging first."""
        found = read((yield "tag", "get", tag, offset, count), _PART)
        return Jids(total=found.total, jobs=as_list(found.jobs))

    tagged, atagged = twins(_tagged)

    def _failed_groups(self) -> Steps[dict[str, int]]:
        """How many jobs have failed, by group."""
        return read((yield ("failed",)), _GROUPS)

    def _failed_in(self, group: str, offset: int = 0, count: int = 25) -> Steps[Failures]:
        found = read((yield "failed", group, offset, count), _PART)
        return Failures(found.total, (yield from self._multiget(*as_list(found.jobs))))

    def _failed(self, group: str | None = None, offset: int = 0, count: int = 25) -> Steps[Any]:
        if group is None:
            return (yield from self._failed_groups())
        return (yield from self._failed_in(group, offset, count))

    @overload
    def failed(self) -> dict[str, int]: ...
    @overload
    def failed(self, group: str, offset: int = 0, count: int = 25) -> Failures: ...
    def failed(self, group: str | None = None, offset: int = 0, count: int = 25) -> Any:
        """How many jobs have failed, by group; or the failed jobs of a group, newest first."""
        return self.client.run(self._failed(group, offset, count))

    @overload
    async def afailed(self) -> dict[str, int]: ...
    @overload
    async def afailed(self, group: str, offset: int = 0, count: int = 25) -> Failures: ...
    async def afailed(self, group: str | None = None, offset: int = 0, count: int = 25) -> Any:
        """The same for asyncio."""
        return await self.client.arun(self._failed(group, offset, count))

    def _search(
        self,
        *,
        state: str | None = None,
        klass: str | None = None,
        queue: str | None = None,
        count: int = 25,
        scan: int = 1000,
        cursor: str = "",
    ) -> Steps[Found]:
        """Jobs by state, class and queue: at most `count` of the `scan` looked at; go on with the answer's `cursor`."""
        given = {"state": state, "klass": klass, "queue": queue, "cursor": cursor or None}
        pairs = [part for name, value in given.items() if value is not None for part in (name, value)]
        found = read((yield "search", *pairs, "count", count, "scan", scan), _PART)
        return Found(jobs=as_list(found.jobs), cursor=found.cursor)

    search, asearch = twins(_search)

    def _result(self, jid: str) -> Steps[Result | None]:
        """What a job has told, also while it runs; None: there is no such job."""
        reply = yield "result", jid
        if reply is None:
            return None
        found = read(reply, _RESULT)
        return Result(
            jid=found.jid,
            state=found.state,
            result=decode(found.result) if isinstance(found.result, str) else None,
            progress=None if found.progress is False else float(found.progress),
            message=found.message if isinstance(found.message, str) else "",
            at=None if found.at is False else float(found.at),
        )

    result, aresult = twins(_result)


__all__ = ["Jobs"]
