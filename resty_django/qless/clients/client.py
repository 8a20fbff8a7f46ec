"""The client of the job queue, and its collections: `client.queues`, `client.workers`, `client.config`."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.utils.translation import gettext as _

from ..core import PREFIX
from ..errors import DependencyError, InvalidArgument
from . import worker_reports
from .events import Events
from .figures import JobFigures
from .graph import MAX_GRAPH_JOBS, cancel_all, dependents_first, retry_all
from .groups import Groups
from .jobs import Jobs
from .queue import Queue
from .replies import Page, QueueCounts, StuckJob, WorkerCounts, WorkerJobs, WorkerLife
from .serialization import LuaList, as_list, read, read_list, text
from .transport import ScriptClient, Steps, batches, pages, sync_and_async
from .worker_reports import WorkerReport, WorkerStacks

if TYPE_CHECKING:
    from resty_django.redis import Origin

CHANGES_PER_CALL: Final = 50
"""Maximum number of jobs that one call deletes or unfails: groups and dependents may follow each of them, and deleted
jobs are searched for in their failure group's list."""


class _WorkerJobs(msgspec.Struct):
    jobs: LuaList[str]
    stalled: LuaList[str]


class Queues:
    """The queues: `client.queues["name"]`. Looking up a queue sends nothing to the server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __getitem__(self, name: str) -> Queue:
        return Queue(self.client, name)

    def _counts(self) -> Steps[list[QueueCounts]]:
        """Return the job counts of all queues by state, in order of first use."""
        queues = yield from pages(Page[LuaList[QueueCounts]], "queues")
        return [counts for page in queues for counts in as_list(page)]

    counts, acounts = sync_and_async(_counts)


class Workers:
    """The workers: `client.workers["name"]` returns the jobs of one worker.

    `quiet`, `resume`, `stop`, `scale` and `request_stacks` control workers of `manage.py runqless`.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def _get(self, name: str) -> Steps[WorkerJobs]:
        """Return the jobs of a worker; an unknown worker has none."""
        lists = read((yield "workers", name), _WorkerJobs)
        return WorkerJobs(jobs=as_list(lists.jobs), stalled=as_list(lists.stalled))

    get, aget = sync_and_async(_get)

    def __getitem__(self, name: str) -> WorkerJobs:
        return self.get(name)

    def _counts(self) -> Steps[list[WorkerCounts]]:
        """Return all workers, most recently seen first. Forgets those not seen for `max-worker-age` seconds."""
        workers = yield from pages(Page[LuaList[WorkerCounts]], "workers")
        return [counts for page in workers for counts in as_list(page)]

    counts, acounts = sync_and_async(_counts)

    def _alive(self) -> Steps[list[WorkerLife]]:
        """Return the workers that report in (`manage.py runqless` does), latest report first."""
        return read_list((yield ("workers.alive",)), WorkerLife)

    alive, aalive = sync_and_async(_alive)

    def _deregister(self, *names: str) -> Steps[None]:
        """Remove workers from the list. They keep their jobs until the locks expire."""
        yield from self.client._deregister_workers(names)

    deregister, aderegister = sync_and_async(_deregister)

    def _reports(self, *names: str) -> Steps[list[WorkerReport]]:
        """Return the reports of these workers, or of all; workers of other clients have none."""
        if not names:
            names = tuple(worker.name for worker in (yield from self._alive()))
        reports: list[WorkerReport] = []
        for batch in batches(names, worker_reports.WORKERS_PER_CALL):
            reports += worker_reports.reports_of((yield "worker.reports", *batch))
        return reports

    reports, areports = sync_and_async(_reports)

    def _quiet(self, name: str) -> Steps[int]:
        """Ask a worker to take no more jobs; return the id of the request.

        The worker confirms a request when it has followed it: see `WorkerReport.requests`. Raises `QlessError` if the
        worker does not report, like workers of other clients.
        """
        return int((yield "worker.request", name, worker_reports.QUIET))

    quiet, aquiet = sync_and_async(_quiet)

    def _resume(self, name: str) -> Steps[int]:
        """Ask a quiet worker to take jobs again; return the id of the request."""
        return int((yield "worker.request", name, worker_reports.RESUME))

    resume, aresume = sync_and_async(_resume)

    def _stop(self, name: str) -> Steps[int]:
        """Ask a worker process to stop as after SIGTERM; its supervisor does not replace it. Return the id of the
        request."""
        return int((yield "worker.request", name, worker_reports.STOP))

    stop, astop = sync_and_async(_stop)

    def _scale(self, name: str, slots: int) -> Steps[int]:
        """Ask a worker process to run up to `slots` jobs at once; return the id of the request.

        Raises `InvalidArgument` if the worker does not allow that many: see `WorkerReport.max_slots`.
        """
        reports = yield from self._reports(name)
        if reports and not 1 <= slots <= reports[0].max_slots:
            text = _("%(slots)s slots are not possible. Use 1 to %(max)s for %(worker)s.")
            raise InvalidArgument(text % {"slots": slots, "max": reports[0].max_slots, "worker": name})
        return int((yield "worker.request", name, worker_reports.SCALE, slots))

    scale, ascale = sync_and_async(_scale)

    def _request_stacks(self, name: str) -> Steps[int]:
        """Ask a worker for the stacks of its running jobs; return the id of the request, which `stacks` repeats."""
        return int((yield "worker.request", name, worker_reports.STACKS))

    request_stacks, arequest_stacks = sync_and_async(_request_stacks)

    def _stacks(self, name: str) -> Steps[WorkerStacks | None]:
        """Return the stacks that a worker has sent within the last two minutes; None if it has not."""
        return worker_reports.stacks_of((yield "worker.stacks", name))

    stacks, astacks = sync_and_async(_stacks)


class Config:
    """The options of the job queue.

    The server stores strings. `get` and `all` return those that look like numbers as numbers, except `application` and
    `fixes`.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def _get(self, option: str, default: Any = None) -> Steps[Any]:
        """Return the value of an option, else the core's default, else `default`."""
        reply = yield "config.get", option
        return default if reply is None else _value(option, text(reply) if isinstance(reply, bytes) else reply)

    get, aget = sync_and_async(_get)

    def _set(self, option: str, value: str | float) -> Steps[None]:
        """Set an option for all clients, at once."""
        yield "config.set", option, str(int(value) if isinstance(value, bool) else value)

    set, aset = sync_and_async(_set)

    def _all(self) -> Steps[dict[str, Any]]:
        """Return all options that are set or have a default in the core."""
        options = read((yield ("config.get",)), dict[str, Any])
        return {option: _value(option, value) for option, value in options.items()}

    all, aall = sync_and_async(_all)

    def _unset(self, option: str) -> Steps[None]:
        """Reset an option to its default."""
        yield "config.unset", option

    unset, aunset = sync_and_async(_unset)
    clear, aclear = unset, aunset


class Client(ScriptClient):
    """A client of the job queue. Usable in all threads and event loops, and after a fork.

        client = Client("redis://127.0.0.1:6379/1")
        jid = client.queues["mail"].put("shop.jobs.SendInvoice", {"order": 7})
        client.jobs[jid].state  # "waiting"

    `redis`: the server, as an alias of CACHES, a URL, a client of redis-py (also of a cluster, also for asyncio), or a
    function that returns one. `async_redis`: the same for asyncio, if `redis` does not serve both. `prefix`: the
    beginning of all keys; on a cluster it has a hash tag, such as `{jobs}ql:`. `worker_name`: the worker that popped
    jobs belong to (None: `<host>-<pid>`). `name`: the name of this client in logs. `clock`: returns seconds since the
    epoch.
    """

    def __init__(
        self,
        redis: Origin = "default",
        *,
        async_redis: Origin | None = None,
        prefix: str = PREFIX,
        worker_name: str | None = None,
        name: str = "default",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(redis, async_redis, prefix, clock)
        self.name = name
        self._worker_name = worker_name
        self._own_name: tuple[int, str] = (0, "")
        self.queues = Queues(self)
        self.jobs = Jobs(self)
        self.groups = Groups(self)
        self.figures = JobFigures(self)
        self.workers = Workers(self)
        self.config = Config(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.prefix}>"

    @property
    def client(self) -> Client:
        return self

    @property
    def worker_name(self) -> str:
        """The worker that popped jobs belong to. By default each process has its own name."""
        if self._worker_name is not None:
            return self._worker_name
        pid = os.getpid()
        if self._own_name[0] != pid:
            self._own_name = (pid, f"{socket.gethostname()}-{pid}")
        return self._own_name[1]

    @worker_name.setter
    def worker_name(self, name: str | None) -> None:
        self._worker_name = name

    def events(self) -> Events:
        """Return a listener, which opens its own connection."""
        return Events(self)

    @staticmethod
    def generate_jid() -> str:
        """Return 32 random hexadecimal digits."""
        return os.urandom(16).hex()

    def _track(self, jid: str) -> Steps[bool]:
        """Announce the job's changes as events. Return False if they were already. Raises `QlessError` for an unknown
        job."""
        return bool((yield "track", "track", jid) == b"1")

    track, atrack = sync_and_async(_track)

    def _untrack(self, jid: str) -> Steps[bool]:
        """Stop announcing the job's changes. Return False if they were not announced."""
        return bool((yield "track", "untrack", jid) == b"1")

    untrack, auntrack = sync_and_async(_untrack)

    def _tags(self, offset: int = 0, count: int = 100) -> Steps[list[str]]:
        """Return the tags that at least two jobs have, most used first."""
        return read_list((yield "tag", "top", offset, count), str)

    tags, atags = sync_and_async(_tags)

    def _bulk_cancel(self, jids: Iterable[str]) -> Steps[list[str]]:
        """Delete jobs, including those that depend on each other; return their jids. Raises `DependencyError`.

        Up to 50 jobs are deleted atomically. More are sent in batches, dependents first: an error between two batches,
        or the end of this process, leaves the rest.
        """
        requested = list(jids)
        ordered = list(dict.fromkeys(requested))
        if len(ordered) > CHANGES_PER_CALL:
            dependents = {job.jid: job.dependents for job in (yield from self.jobs._multiget(*ordered))}
            for jid in ordered:
                for dependent in dependents.get(jid, ()):
                    if dependent not in dependents:
                        raise DependencyError(
                            f"Cancel(): {jid} is a dependency of {dependent} but is not mentioned to be canceled"
                        )
            ordered = dependents_first(ordered, dependents)
        for batch in batches(ordered, CHANGES_PER_CALL):
            yield "cancel", *batch
        return requested

    bulk_cancel, abulk_cancel = sync_and_async(_bulk_cancel)

    def _cancel_graph(self, jid: str, limit: int = MAX_GRAPH_JOBS) -> Steps[int]:
        """Cancel all jobs that are connected with a job (or a group) and not complete, also running ones; return how
        many.

        `client.jobs.graph` describes which these are. They are canceled in batches of 50, dependents first. Raises
        `GraphTooLarge` and `NoSuchJob`, before anything is canceled; and `DependencyError` if jobs that depend on them
        are put all the while, or more than 50 jobs wait for each other in a circle.
        """
        return (yield from cancel_all(self, jid, limit))

    cancel_graph, acancel_graph = sync_and_async(_cancel_graph)

    def _retry_graph(self, jid: str, limit: int = MAX_GRAPH_JOBS) -> Steps[int]:
        """Requeue all jobs that are connected with a job (or a group) and failed in a run; return how many.

        Each returns to its own queue. Jobs that failed because of them wait for them again. Raises `GraphTooLarge` and
        `NoSuchJob`.
        """
        return (yield from retry_all(self, jid, limit))

    retry_graph, aretry_graph = sync_and_async(_retry_graph)

    def stuck(self, queue: str | None = None) -> Iterator[StuckJob]:
        """Yield the jobs of a queue, or of all queues, that wait for something that will not end.

        Each call to the server examines at most 100 jobs. If jobs stop waiting in the meantime, others may be missed.
        """
        for name in (counts.name for counts in self.queues.counts()) if queue is None else (queue,):
            cursor: str | None = ""
            while cursor is not None:
                page = self.queues[name].stuck(cursor)
                yield from page.jobs
                cursor = page.cursor or None

    async def astuck(self, queue: str | None = None) -> AsyncIterator[StuckJob]:
        """Do the same for asyncio."""
        for name in [counts.name for counts in await self.queues.acounts()] if queue is None else [queue]:
            cursor: str | None = ""
            while cursor is not None:
                page = await self.queues[name].astuck(cursor)
                for job in page.jobs:
                    yield job
                cursor = page.cursor or None

    def _unfail(self, group: str, queue: str, count: int = 500) -> Steps[int]:
        """Move the oldest `count` failed jobs of a group to a queue, where they wait; return how many were moved.

        They are moved 50 at a time: other clients may see some of them waiting before the rest.
        """
        moved = 0
        for first in range(0, count, CHANGES_PER_CALL):
            size = min(CHANGES_PER_CALL, count - first)
            count_moved = int((yield "unfail", queue, group, size))
            moved += count_moved
            # fewer than requested: none are left, or some of the oldest were gone
            if count_moved < size and not (yield from self.jobs._failed_in(group, 0, 1)).total:
                break
        return moved

    unfail, aunfail = sync_and_async(_unfail)

    def _unfail_all(self) -> Steps[int]:
        """Move the failed jobs of each group to the queue of its newest job; return how many were moved."""
        moved = 0
        for group, count in (yield from self.jobs._failed_groups()).items():
            newest = (yield from self.jobs._failed_in(group, 0, 1)).jobs
            if not newest:
                continue
            moved += yield from self._unfail(group, newest[0].queue_name, count)
        return moved

    unfail_all, aunfail_all = sync_and_async(_unfail_all)

    def _deregister_workers(self, names: Iterable[str]) -> Steps[None]:
        """Remove workers from the list. They keep their jobs until the locks expire."""
        for batch in batches(tuple(names), 100):
            yield "worker.deregister", *batch

    deregister_workers, aderegister_workers = sync_and_async(_deregister_workers)

    def _tidy(self) -> Steps[None]:
        """Finish the work that calls have deferred, until nothing is left or another client does it.

        That is: jobs with many dependencies or dependents, and complete jobs and workers that are too old. Workers do
        it too.
        """
        while (yield "tidy", self.worker_name):
            pass

    tidy, atidy = sync_and_async(_tidy)

    # --- options, as qless names these methods: see `Config` ---

    def _config_get(self, option: str, default: Any = None) -> Steps[Any]:
        """Return the value of an option, else the core's default, else `default`."""
        return (yield from self.config._get(option, default))

    config_get, aconfig_get = sync_and_async(_config_get)

    def _config_set(self, option: str, value: str | float) -> Steps[None]:
        """Set an option. It applies to all clients."""
        yield from self.config._set(option, value)

    config_set, aconfig_set = sync_and_async(_config_set)

    def _config_get_all(self) -> Steps[dict[str, Any]]:
        """Return all options that are set or have a default in the core."""
        return (yield from self.config._all())

    config_get_all, aconfig_get_all = sync_and_async(_config_get_all)

    def _config_clear(self, option: str) -> Steps[None]:
        """Reset an option to its default."""
        yield from self.config._unset(option)

    config_clear, aconfig_clear = sync_and_async(_config_clear)

    def close(self) -> None:
        """Close the connections that were made from a URL or by a function. Those for asyncio close with their loop."""
        self.source.close()


def _value(option: str, value: object) -> Any:
    if not isinstance(value, str) or option in ("application", "fixes"):
        return value
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", value) else value
