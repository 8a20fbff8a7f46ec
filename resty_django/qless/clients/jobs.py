"""Jobs in any state and queue: `client.jobs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import msgspec

from .graph import MAX_GRAPH_JOBS, Graph, graph_of_existing
from .job import JOBS_PER_CALL, Job, job_list
from .put_options import JobOutcome, read_outcome
from .queue import jids_in_pages
from .recurring import RecurringJob, of_reply
from .replies import Failures, JidPage, JobRecord, JobResult, Page, SearchPage, Tracked
from .serialization import LuaList, as_list, decode, read
from .transport import Steps, batches, pages, sync_and_async

if TYPE_CHECKING:
    from .client import Client


class _JidPage(msgspec.Struct):
    jobs: LuaList[str]
    total: int = 0
    cursor: str = ""


class _Tracked(msgspec.Struct):
    jobs: LuaList[JobRecord]
    expired: LuaList[str]


class _StoredResult(msgspec.Struct):
    jid: str
    state: str
    result: str | bool
    progress: float | bool
    message: str | bool
    at: float | bool


class Jobs:
    """Access to jobs by jid, tag, state, failure group, and by search."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _get(self, jid: str) -> Steps[Job | RecurringJob | None]:
        """Return the job or the recurring job with this jid, or None."""
        reply = yield "get", jid
        if reply is not None:
            return Job(self.client, read(reply, JobRecord))
        return of_reply(self.client, (yield "recur.get", jid))

    get, aget = sync_and_async(_get)

    def __getitem__(self, jid: str) -> Job | RecurringJob | None:
        return self.get(jid)

    def _multiget(self, *jids: str) -> Steps[list[Job]]:
        """Return the jobs with these jids that exist; more than 50 are fetched in several calls."""
        jobs: list[Job] = []
        for batch in batches(jids, JOBS_PER_CALL):
            jobs += job_list(self.client, (yield "multiget", *batch))
        return jobs

    multiget, amultiget = sync_and_async(_multiget)

    def _complete(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return the jids of complete jobs, newest first."""
        return (yield from jids_in_pages(("jobs", "complete"), offset, count))

    complete, acomplete = sync_and_async(_complete)

    def _tracked(self) -> Steps[Tracked]:
        """Return the tracked jobs."""
        tracked = yield from pages(Page[_Tracked], "tracked", JOBS_PER_CALL)
        return Tracked(
            [Job(self.client, record) for page in tracked for record in as_list(page.jobs)],
            [jid for page in tracked for jid in as_list(page.expired)],
        )

    tracked, atracked = sync_and_async(_tracked)

    def _tagged(self, tag: str, offset: int = 0, count: int = 25) -> Steps[JidPage]:
        """Return the jids of jobs with a tag, oldest tagging first."""
        page = read((yield "tag", "get", tag, offset, count), _JidPage)
        return JidPage(total=page.total, jobs=as_list(page.jobs))

    tagged, atagged = sync_and_async(_tagged)

    def _failed_groups(self) -> Steps[dict[str, int]]:
        """Return the number of failed jobs by group."""
        return {
            group: count for page in (yield from pages(Page[dict[str, int]], "failed")) for group, count in page.items()
        }

    def _failed_in(self, group: str, offset: int = 0, count: int = 25) -> Steps[Failures]:
        page = read((yield "failed", group, offset, count), _JidPage)
        return Failures(page.total, (yield from self._multiget(*as_list(page.jobs))))

    def _failed(self, group: str | None = None, offset: int = 0, count: int = 25) -> Steps[Any]:
        if group is None:
            return (yield from self._failed_groups())
        return (yield from self._failed_in(group, offset, count))

    @overload
    def failed(self) -> dict[str, int]: ...
    @overload
    def failed(self, group: str, offset: int = 0, count: int = 25) -> Failures: ...
    def failed(self, group: str | None = None, offset: int = 0, count: int = 25) -> Any:
        """Return the number of failed jobs by group, or the failed jobs of one group, newest first."""
        return self.client.run(self._failed(group, offset, count))

    @overload
    async def afailed(self) -> dict[str, int]: ...
    @overload
    async def afailed(self, group: str, offset: int = 0, count: int = 25) -> Failures: ...
    async def afailed(self, group: str | None = None, offset: int = 0, count: int = 25) -> Any:
        """Do the same for asyncio."""
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
    ) -> Steps[SearchPage]:
        """Search jobs by state, class and queue.

        Examines at most `scan` jobs and returns at most `count` of them; pass the reply's `cursor` to continue.
        """
        filters = {"state": state, "klass": klass, "queue": queue, "cursor": cursor or None}
        pairs = [argument for name, value in filters.items() if value is not None for argument in (name, value)]
        page = read((yield "search", *pairs, "count", count, "scan", scan), _JidPage)
        return SearchPage(jobs=as_list(page.jobs), cursor=page.cursor)

    search, asearch = sync_and_async(_search)

    def _result(self, jid: str) -> Steps[JobResult | None]:
        """Return the result and progress of a job, also while it runs; None if it does not exist."""
        reply = yield "result", jid
        if reply is None:
            return None
        fields = read(reply, _StoredResult)
        return JobResult(
            jid=fields.jid,
            state=fields.state,
            result=decode(fields.result) if isinstance(fields.result, str) else None,
            progress=None if fields.progress is False else float(fields.progress),
            message=fields.message if isinstance(fields.message, str) else "",
            at=None if fields.at is False else float(fields.at),
        )

    result, aresult = sync_and_async(_result)

    def _outcome(self, jid: str) -> Steps[JobOutcome | None]:
        """Return the callbacks, policies and groups of a job; None if it has none, is complete, or does not exist."""
        return read_outcome((yield "outcome", jid))

    outcome, aoutcome = sync_and_async(_outcome)

    def _graph(self, jid: str, limit: int = MAX_GRAPH_JOBS) -> Steps[Graph]:
        """Return all jobs that are connected with a job, or a group, through dependencies, dependents and groups.

        Complete jobs are connected only through groups, because they no longer hold up others, and no longer know
        their groups. Raises `GraphTooLarge` if there are more than `limit`, and `NoSuchJob`.
        """
        return (yield from graph_of_existing(self.client, jid, limit))

    graph, agraph = sync_and_async(_graph)
