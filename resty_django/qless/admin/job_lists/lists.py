"""Lists of jobs: pages of a list in Redis with its total, or a bounded search.

    job_list = JobList(client, JobFilter(queue="mail", state="waiting"))
    jobs = job_list.page(0).jobs if job_list.exact else job_list.scan("").jobs

Each call of the core handles one page of jobs at most, so that no list blocks the server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from resty_django.admin.tables import MAX_SORTED, PAGE_SIZE

from ...clients.client import Client
from ...clients.job import Job
from ...search.terms import Fragment
from ..redis_reads import fetch_jobs
from .filters import JobFilter
from .search import FEW_ENTRIES, MAX_EXAMINED, IndexLookup, JidChunk, is_index_cursor
from .sources import ListOrder, ListSource, source_of

NO_LIST: Final = ListSource((), ListOrder("", ""), lambda: 0, lambda start, count: [], countable=False)
"""The source of a filter without a list in Redis, for which all jobs are searched."""
MAX_SCANNED: Final = 300
"""Maximum number of jobs that a search reads for one page: about 5 ms of the server's time."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of a list. `cursor`: where the next page of a search starts."""

    jobs: Sequence[Job]
    cursor: str = ""
    scanned: int = 0
    gone: Sequence[str] = field(default_factory=tuple)
    """Jids in the list whose jobs no longer exist."""
    candidates: int | None = None
    """The number of jobs that a search has to examine, if known."""
    fragments: Sequence[Sequence[Fragment]] = field(default_factory=tuple)
    """Where each job matches the search."""


class JobList:
    """The jobs of a filter, from the Redis list that fits it best, or from a search over all jobs.

    `exact`: the Redis list contains only jobs that match the filter, so it has a total and numbered pages.
    """

    def __init__(self, client: Client, job_filter: JobFilter) -> None:
        self.client = client
        self.job_filter = job_filter
        self._source = source_of(client, job_filter) or NO_LIST
        self.lookup: IndexLookup | None = None
        """The search of the index by the latest `scan`."""
        self.exact = self._source is not NO_LIST and job_filter.only(*self._source.fields)
        self.countable = self.exact and self._source.countable
        """Whether the list can be iterated by index, so that operations can select all of its jobs."""
        self.order = self._source.order
        """The order of the whole list; without a text for a search."""
        first_jobs = self._source.first_jobs
        self.first_jobs = first_jobs if first_jobs and first_jobs.most else None
        """The first jobs in a better order than the whole list's, if there is one."""
        self.order_columns = [
            order.column for order in (self.order, self.first_jobs and self.first_jobs.order) if order and order.column
        ]
        """The columns by which the server keeps the list in order."""
        self.total = self._source.total
        """Returns the length of the list in Redis; 0 for a search."""
        self.jids = self._source.jids
        """Returns a part of the list in Redis, from its start and count; nothing for a search."""

    def page(self, start: int, count: int = PAGE_SIZE, *, reverse: bool = False, first: bool = False) -> JobPage:
        """Return a page of an exact list. `first`: in the order of `first_jobs`; `reverse`: in the reverse order."""
        if first and self.first_jobs:
            jids = self.first_jobs.jids(min(self.first_jobs.most, start + count), reverse)[start:]
        else:
            jids = self._source.part(start, count, reverse)
        jobs, gone = fetch_jobs(self.client, jids)
        return JobPage(jobs, gone=gone)

    def all_jobs(self, total: int) -> list[Job]:
        """Return the first `MAX_SORTED` jobs of an exact list."""
        jids = [jid for start in range(0, min(total, MAX_SORTED), PAGE_SIZE) for jid in self.jids(start, PAGE_SIZE)]
        return fetch_jobs(self.client, jids)[0]

    def scan(self, cursor: str) -> JobPage:
        """Search from a cursor until a page is full, or enough jobs were examined.

        Uses the index, unless the list without it is shorter.
        """
        jobs: list[Job] = []
        fragments: list[list[Fragment]] = []
        now, scanned, fetched = self.client.clock(), 0, 0
        self.lookup = self._lookup(cursor)
        limit = MAX_EXAMINED if self.lookup else MAX_SCANNED
        while scanned < limit and fetched < MAX_SCANNED and len(jobs) < PAGE_SIZE:
            chunk = self.lookup.chunk(cursor, PAGE_SIZE) if self.lookup else self._next_chunk(cursor)
            cursor = chunk.cursor
            scanned += chunk.examined
            fetched += len(chunk.jids)
            for job in fetch_jobs(self.client, chunk.jids)[0]:
                places = self.job_filter.fragments(job, now)
                if places is not None:
                    jobs.append(job)
                    fragments.append(places)
            if not cursor:
                break
        return JobPage(jobs, cursor, scanned, candidates=self._candidates(), fragments=fragments)

    def _lookup(self, cursor: str) -> IndexLookup | None:
        """Return the search of the index; None if the list is shorter, or the index cannot help."""
        wanted, reads_list = self.job_filter, bool(cursor) and not is_index_cursor(cursor)
        if wanted.inside or reads_list or not (wanted.terms or wanted.klass):
            return None
        state = {"stalled": ""}.get(wanted.state, wanted.state)  # jobs with lost locks are in two states
        lookup = IndexLookup.build(self.client, wanted.terms, wanted.klass, state, wanted.queue)
        if lookup is None or cursor or lookup.total <= FEW_ENTRIES:
            return lookup
        total = self._list_total()
        return None if total is not None and total < lookup.total else lookup

    def _list_total(self) -> int | None:
        """Return the length of the list that is searched without the index, if it is known."""
        if self._source is not NO_LIST:
            return self.total()
        return sum(self.client.jobs.failed().values()) if self.job_filter.state == "failed" else None

    def _candidates(self) -> int | None:
        return self.lookup.total if self.lookup else self._list_total() if self.job_filter.terms else None

    def _next_chunk(self, cursor: str) -> JidChunk:
        """Return the next jobs of the list in Redis or, without one, of a search by the core."""
        if self._source is not NO_LIST:
            start = int(cursor) if cursor.isascii() and cursor.isdigit() else 0
            jids = self.jids(start, PAGE_SIZE)
            return JidChunk(jids, str(start + PAGE_SIZE) if len(jids) == PAGE_SIZE else "", len(jids))
        state = {"stalled": "running"}.get(self.job_filter.state, self.job_filter.state)
        is_core_cursor = re.fullmatch(r"\d{1,9}:\d{1,15}", cursor, re.ASCII)
        core_cursor = cursor if is_core_cursor else ""  # another search began with the index, which was turned off
        search = self.client.jobs.search(
            state=state or None,
            klass=self.job_filter.klass or None,
            queue=self.job_filter.queue or None,
            count=PAGE_SIZE,
            scan=MAX_SCANNED // 2,
            cursor=core_cursor,
        )
        bounded = bool(self.job_filter.klass or self.job_filter.queue)
        examined = MAX_SCANNED // 2 if bounded and len(search.jobs) < PAGE_SIZE else len(search.jobs)
        return JidChunk(search.jobs, search.cursor, examined)
