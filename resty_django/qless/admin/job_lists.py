"""Lists of jobs: filters, sources in Redis, totals, and a bounded search where no count exists.

Each call of the core handles one page of jobs at most, so that no list blocks the server.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from resty_django.admin.tables import MAX_SORTED, PAGE_SIZE

from ..clients.job import Job, job_list
from ..clients.replies import QueueCounts
from ..clients.serialization import as_list, decode, read, reader, scores, text
from ..clients.transport import RedisCommand, Steps
from ..models import name_of
from ..search.query import Term, first, parse
from ..search.terms import Fragment, match_all
from .formatting import QUEUE_STATES
from .job_merge import latest_failed, max_merged, most_urgent
from .job_search import FEW, MAX_EXAMINED, IndexLookup, age_of, document_of, is_index_cursor

_COUNTS: Final = reader(QueueCounts)
_SCAN_CURSOR: Final = re.compile(r"\d{1,9}:\d{1,15}", re.ASCII)

MAX_SCANNED: Final = 300
"""Maximum number of jobs that a search reads for one page: about 5 ms of the server's time."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The filter of a list. `state` is one of `formatting.STATES` or empty. `terms`: of the search text; `inside`: also
    in the middle of words, without the index."""

    state: str = ""
    queue: str = ""
    klass: str = ""
    tag: str = ""
    group: str = ""
    worker: str = ""
    tracked: bool = False
    terms: tuple[Term, ...] = ()
    inside: bool = False

    @classmethod
    def from_query(cls, query: Any) -> JobFilter:
        """Return the filter of a URL query; names are tokens. Raises `QueryError` for a search text.

        Fields of the search text come before parameters of the same name.
        """
        names = {key: name_of(query.get(key, "")) for key in ("queue", "tag", "group", "worker")}
        terms = parse(query.get("q", "").strip())
        for name in ("queue", "tag"):
            names[name] = first(terms, name) or names[name]
        kept = [term for term in terms if term.field not in ("state", "queue")]
        tag_terms = [term for term in kept if term.field == "tag"]
        return cls(
            state=first(terms, "state") or query.get("state", ""),
            klass=query.get("klass", "").strip(),
            tracked="tracked" in query,
            terms=tuple(term for term in kept if term not in tag_terms[:1]),
            inside=bool(kept) and "inside" in query,
            **names,
        )

    def only(self, *names: str) -> bool:
        """Return whether no fields other than `names` are set."""
        return all(not getattr(self, key) for key in self.__slots__ if key not in names)

    def matches(self, job: Job, now: float) -> bool:
        if self.state == "stalled":
            state_fits = job.state == "stalled" or (job.state == "running" and job.expires_at <= now)
        else:
            state_fits = not self.state or job.state == self.state
        if self.state == "running":
            state_fits = state_fits and job.expires_at > now
        return (
            state_fits
            and (not self.queue or job.queue_name == self.queue)
            and (not self.klass or job.klass == self.klass)
            and (not self.tag or self.tag in job.tags)
            and (not self.worker or job.worker_name == self.worker)
            and (not self.group or job.failure.get("group") == self.group)
            and (not self.tracked or job.tracked)
        )

    def fragments(self, job: Job, now: float) -> list[Fragment] | None:
        """Return where the job matches the terms, or None if it does not match the filter."""
        if not self.matches(job, now):
            return None
        return match_all(self.terms, document_of(job), age_of(job, now), self.inside) if self.terms else []


@dataclass(frozen=True, slots=True)
class Page:
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


@dataclass(frozen=True, slots=True)
class ListOrder:
    """An order of a list, and how pages name it. `column`: the column that it sorts by, if it is one."""

    text: Any
    reversed_text: Any
    column: str = ""
    descending: bool = False


@dataclass(frozen=True, slots=True)
class FirstJobs:
    """The first jobs of a list in an order that the server can provide only for them.

    `most`: the maximum number; `jids`: takes a count, and whether to reverse the order; `all_text`: names the order of
    the whole list.
    """

    order: ListOrder
    most: int
    jids: Callable[[int, bool], list[str]]
    all_text: Any


@dataclass(frozen=True, slots=True)
class ListSource:
    """A list of jids in Redis. `fields`: the filter fields that select it; the others narrow it down."""

    fields: tuple[str, ...]
    order: ListOrder
    total: Callable[[], int]
    jids: Callable[[int, int], list[str]]
    """Takes start and count."""
    backwards: bool = False
    """Whether `jids` returns the opposite of `order`."""
    countable: bool = True
    """Whether the jobs keep their positions unless an operation moves them, so that it can go through all of them."""
    first_jobs: FirstJobs | None = None

    def part(self, start: int, count: int, reverse: bool = False) -> list[str]:
        """Return jids in the list's order, or in the reverse one."""
        if reverse == self.backwards:
            return self.jids(start, count)
        end = max(0, self.total() - start)
        first = max(0, end - count)
        return self.jids(first, end - first)[::-1] if end > first else []


class JobList:
    """The jobs of a filter: from the list in Redis that fits best, else by a search over all jobs.

    `exact`: all jobs of the list match the filter, so that it has a total and numbered pages.
    """

    def __init__(self, client: Any, job_filter: JobFilter) -> None:
        self.client = client
        self.job_filter = job_filter
        self._source = _source_of(client, job_filter)
        self.lookup: IndexLookup | None = None
        """How the latest `scan` has searched the index."""
        self.exact = self._source is not None and job_filter.only(*self._source.fields)

    @property
    def countable(self) -> bool:
        """Return whether the list can be iterated by index, so that operations can select all of its jobs."""
        return self.exact and self._source is not None and self._source.countable

    @property
    def order(self) -> ListOrder:
        """The order of the whole list; without a text for a search."""
        return self._source.order if self._source else ListOrder("", "")

    @property
    def first_jobs(self) -> FirstJobs | None:
        """The first jobs in a better order than the whole list's, if there is one."""
        first_jobs = self._source.first_jobs if self._source else None
        return first_jobs if first_jobs and first_jobs.most else None

    def total(self) -> int:
        """Return the length of the list in Redis; 0 for a search."""
        return self._source.total() if self._source else 0

    def jids(self, start: int, count: int) -> list[str]:
        """Return a part of the list in Redis; nothing for a search."""
        return self._source.jids(start, count) if self._source else []

    def page(self, start: int, count: int = PAGE_SIZE, *, reverse: bool = False, first: bool = False) -> Page:
        """Return a page of an exact list. `first`: in the order of `first_jobs`; `reverse`: in the reverse order."""
        if self._source is None:
            return Page(())
        if first and self.first_jobs:
            jids = self.first_jobs.jids(min(self.first_jobs.most, start + count), reverse)[start:]
        else:
            jids = self._source.part(start, count, reverse)
        jobs, gone = fetch_jobs(self.client, jids)
        return Page(jobs, gone=gone)

    def all_jobs(self, total: int) -> list[Job]:
        """Return the first `MAX_SORTED` jobs of an exact list."""
        jids = [jid for start in range(0, min(total, MAX_SORTED), PAGE_SIZE) for jid in self.jids(start, PAGE_SIZE)]
        return fetch_jobs(self.client, jids)[0]

    def scan(self, cursor: str) -> Page:
        """Search from a cursor until a page is full, or enough jobs were examined.

        Uses the index, unless the list without it is shorter.
        """
        jobs: list[Job] = []
        fragments: list[list[Fragment]] = []
        now, scanned, fetched = self.client.clock(), 0, 0
        self.lookup = self._lookup(cursor)
        limit = MAX_EXAMINED if self.lookup else MAX_SCANNED
        while scanned < limit and fetched < MAX_SCANNED and len(jobs) < PAGE_SIZE:
            if self.lookup:
                jids, cursor, chunk_size = self.lookup.chunk(cursor, PAGE_SIZE)
            else:
                jids, cursor, chunk_size = self._next_chunk(cursor)
            scanned += chunk_size
            fetched += len(jids)
            for job in fetch_jobs(self.client, jids)[0]:
                places = self.job_filter.fragments(job, now)
                if places is not None:
                    jobs.append(job)
                    fragments.append(places)
            if not cursor:
                break
        return Page(jobs, cursor, scanned, candidates=self._candidates(), fragments=fragments)

    def _lookup(self, cursor: str) -> IndexLookup | None:
        """Return how to search the index; None if the list is shorter, or the index is of no use."""
        wanted, reads_list = self.job_filter, bool(cursor) and not is_index_cursor(cursor)
        if wanted.inside or reads_list or not (wanted.terms or wanted.klass):
            return None
        state = {"stalled": ""}.get(wanted.state, wanted.state)  # jobs with lost locks are in two states
        lookup = IndexLookup.build(self.client, wanted.terms, wanted.klass, state, wanted.queue)
        if lookup is None or cursor or lookup.total <= FEW:
            return lookup
        total = self._list_total()
        return None if total is not None and total < lookup.total else lookup

    def _list_total(self) -> int | None:
        """Return the length of the list that is searched without the index, if it is known."""
        if self._source:
            return self.total()
        return sum(self.client.jobs.failed().values()) if self.job_filter.state == "failed" else None

    def _candidates(self) -> int | None:
        return self.lookup.total if self.lookup else self._list_total() if self.job_filter.terms else None

    def _next_chunk(self, cursor: str) -> tuple[list[str], str, int]:
        if self._source:
            start = int(cursor) if cursor.isascii() and cursor.isdigit() else 0
            jids = self.jids(start, PAGE_SIZE)
            return jids, str(start + PAGE_SIZE) if len(jids) == PAGE_SIZE else "", len(jids)
        state = {"stalled": "running"}.get(self.job_filter.state, self.job_filter.state)
        search = self.client.jobs.search(
            state=state or None,
            klass=self.job_filter.klass or None,
            queue=self.job_filter.queue or None,
            count=PAGE_SIZE,
            scan=MAX_SCANNED // 2,
            cursor=cursor if _SCAN_CURSOR.fullmatch(cursor) else "",  # another one, if the index was turned off
        )
        bounded = bool(self.job_filter.klass or self.job_filter.queue)
        return (
            search.jobs,
            search.cursor,
            MAX_SCANNED // 2 if bounded and len(search.jobs) < PAGE_SIZE else len(search.jobs),
        )


NEWEST_FIRST: Final = ListOrder(_("Newest first"), _("Oldest first"), "changed", descending=True)
STATE_ORDERS: Final = {
    "waiting": ListOrder(
        _("In the order in which they will run"), _("Those that will run last first"), "priority", descending=True
    ),
    "running": ListOrder(_("Those whose lease ends first"), _("Those whose lease ends last")),
    "stalled": ListOrder(_("Those that have been stalled longest"), _("Those that have stalled last")),
    "scheduled": ListOrder(_("Soonest first"), _("Latest first")),
    "depends": ListOrder(_("Those that have waited longest"), _("Newest first")),
}
BY_QUEUE: Final = ListOrder(_("By queue"), _("By queue, the last one first"), "queue")
BY_GROUP: Final = ListOrder(_("By failure group"), _("By failure group, the last one first"), "group")
BY_STATE: Final = ListOrder(_("By state"), _("By state, the least urgent first"), "state")
URGENT_STATES: Final = ("stalled", "running", "waiting", "scheduled", "depends")
"""The states of jobs in queues, the most urgent first."""


def _source_of(client: Any, job_filter: JobFilter) -> ListSource | None:
    """Return the list in Redis that fits a filter best; None if only a search can find its jobs."""
    state = job_filter.state
    if group := job_filter.group:
        return ListSource(
            ("group",),
            NEWEST_FIRST,
            lambda: failed_jids(client, group, 0, 1)[0],
            lambda start, count: failed_jids(client, group, start, count)[1],
        )
    if tag := job_filter.tag:
        return ListSource(
            ("tag",),
            ListOrder(_("Latest tagged first"), _("First tagged first")),
            lambda: int(client.jobs.tagged(tag, 0, 1).total),
            lambda start, count: list(client.jobs.tagged(tag, start, count).jobs),
            backwards=True,
        )
    if name := job_filter.worker:
        return ListSource(
            ("worker",),
            ListOrder(_("Stalled jobs first"), _("Stalled jobs last")),
            lambda: len(_worker_jids(client, name)),
            lambda start, count: _worker_jids(client, name)[start : start + count],
            countable=False,
        )
    if job_filter.tracked:
        return ListSource(
            ("tracked",),
            ListOrder(_("Latest tracked first"), _("First tracked first")),
            lambda: int(redis_command(client, "ZCARD", "tracked")),
            lambda start, count: list(redis_command(client, "ZREVRANGE", "tracked", start, start + count - 1)),
            countable=False,
        )
    if job_filter.queue and state in QUEUE_STATES:
        queue = client.queues[job_filter.queue]
        return ListSource(
            ("queue", "state"),
            STATE_ORDERS[state],
            lambda: getattr(queue.counts(), state),
            functools.partial(queue.jobs.in_state, state),
        )
    if state == "complete":
        return ListSource(("state",), NEWEST_FIRST, lambda: _completed(client), client.jobs.complete)
    if state == "failed" and job_filter.only("state"):
        return _all_failed(client)
    if state in QUEUE_STATES and job_filter.only("state"):
        return _all_queues(client, state)
    return _all_jobs(client) if job_filter.only() else None


def _completed(client: Any) -> int:
    return int(redis_command(client, "ZCARD", "completed"))


def _all_failed(client: Any) -> ListSource:
    """Return the jobs of all failure groups: the latest failures first, or all by the groups' names."""
    groups = sorted(client.jobs.failed())
    return ListSource(
        ("state",),
        BY_GROUP,
        lambda: sum(client.jobs.failed().values()),
        lambda start, count: _all_failed_jids(client, start, count),
        first_jobs=FirstJobs(
            NEWEST_FIRST,
            max_merged(len(groups)),
            lambda count, reverse: latest_failed(client, groups, count, reverse),
            _("All of them, by failure group"),
        ),
    )


def _all_queues(client: Any, state: str) -> ListSource:
    """Return the jobs in a state of all queues: the most urgent first, or all by queue."""
    return _of_queues(client, state, sorted(client.queues.counts(), key=lambda counts: counts.name))


def _of_queues(client: Any, state: str, queues: Sequence[QueueCounts]) -> ListSource:
    counts = {queue.name: count for queue in queues if (count := getattr(queue, state))}
    return ListSource(
        ("state",),
        BY_QUEUE,
        lambda: sum(counts.values()),
        lambda start, count: _by_queue(client, state, counts, start, count),
        countable=False,
        first_jobs=FirstJobs(
            STATE_ORDERS[state],
            max_merged(len(counts)),
            lambda count, reverse: most_urgent(client, state, list(counts), count, reverse),
            _("All of them, by queue"),
        ),
    )


def _all_jobs(client: Any) -> ListSource:
    """Return all jobs: by state, within a state the most urgent or latest ones first, or all by state and queue."""
    queues = sorted(client.queues.counts(), key=lambda counts: counts.name)
    parts = [_of_queues(client, state, queues) for state in URGENT_STATES]
    complete = ListSource(("state",), NEWEST_FIRST, lambda: _completed(client), client.jobs.complete)
    parts += [_all_failed(client), complete]
    lengths = [part.total() for part in parts]

    def jids(start: int, count: int) -> list[str]:
        listed: list[str] = []
        for part, length in zip(parts, lengths, strict=True):
            if start < length and len(listed) < count:
                listed += part.jids(start, min(count - len(listed), length - start))
            start = max(0, start - length)
        return listed

    def first_jids(count: int, reverse: bool) -> list[str]:
        listed: list[str] = []
        for part in reversed(parts) if reverse else parts:
            wanted = count - len(listed)
            if wanted > 0:
                first_jobs = part.first_jobs
                listed += first_jobs.jids(wanted, reverse) if first_jobs else part.part(0, wanted, reverse)
        return listed

    return ListSource(
        (),
        BY_STATE,
        lambda: sum(lengths),
        jids,
        countable=False,
        first_jobs=FirstJobs(
            ListOrder(_("The most urgent first, completed jobs last"), _("Completed jobs first, the most urgent last")),
            min(part.first_jobs.most for part in parts if part.first_jobs),
            first_jids,
            _("All of them, by state"),
        ),
    )


def _by_queue(client: Any, state: str, counts: Mapping[str, int], start: int, count: int) -> list[str]:
    """Return a part of the jobs in a state, queue by queue. `counts`: their numbers by queue."""
    jids: list[str] = []
    for name, length in counts.items():
        if start < length and len(jids) < count:
            jids += client.queues[name].jobs.in_state(state, start, min(count - len(jids), length - start))
        start = max(0, start - length)
    return jids


def _worker_jids(client: Any, name: str) -> list[str]:
    worker = client.workers[name]
    return list(dict.fromkeys((*worker.stalled, *worker.jobs)))


def _all_failed_jids(client: Any, start: int, count: int) -> list[str]:
    """Return jids of all failure groups, in order of the groups' names."""
    jids: list[str] = []
    for group, length in sorted(client.jobs.failed().items()):
        if start < length and len(jids) < count:
            jids += failed_jids(client, group, start, count - len(jids))[1]
        start = max(0, start - length)
    return jids


def fetch_jobs(client: Any, jids: Sequence[str]) -> tuple[list[Job], list[str]]:
    """Return the jobs with these jids in the same order, fetched in pages, and the jids of jobs that do not exist."""
    chunks = [("multiget", *jids[start : start + PAGE_SIZE]) for start in range(0, len(jids), PAGE_SIZE)]
    jobs: list[Job] = []
    for reply in client.call_many(chunks) if chunks else ():
        if isinstance(reply, Exception):
            raise reply
        jobs += job_list(client, reply)
    found_jids = {job.jid for job in jobs}
    return jobs, [jid for jid in jids if jid not in found_jids]


def failed_jids(client: Any, group: str, start: int, count: int) -> tuple[int, list[str]]:
    """Return the length of a failure group, and `count` (at least 1) of its jids from `start`, newest first."""
    reply = decode(text(client.call("failed", group, start, count)))
    return reply["total"], as_list(reply["jobs"])


def queue_counts(client: Any, names: Sequence[str]) -> list[QueueCounts]:
    """Return the job counts by state of these queues."""
    replies = client.call_many([("queues", name) for name in names]) if names else []
    return [read(reply, _COUNTS) for reply in replies if not isinstance(reply, Exception)]


def redis_command(client: Any, command: str, key: str, *args: Any) -> Any:
    """Run a Redis command on a key of the job queue and return its reply, with lists of bytes decoded."""

    reply = _run(client, command, key, *args)
    flat = isinstance(reply, list) and all(isinstance(member, bytes) for member in reply)
    return [text(member) for member in reply] if flat else reply


def sorted_set(client: Any, command: str, key: str, start: int, end: int) -> dict[str, float]:
    """Return the members of a sorted set with their scores, in order."""
    return scores(_run(client, command, key, start, end, "WITHSCORES"))


def _run(client: Any, command: str, key: str, *args: Any) -> Any:
    def steps() -> Steps[Any]:
        return (yield RedisCommand((command, client.prefix + key, *args)))

    return client.run(steps())
