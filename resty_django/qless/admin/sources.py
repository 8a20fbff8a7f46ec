"""Which jobs a list shows: where they come from, how many there are, and a bounded search where nobody counts them.

Each call of the core is about one page of jobs at most, so that no list holds the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..call import Plain, Steps
from ..errors import QlessError
from ..job import Job, job_list
from ..models import name_of
from ..texts import as_list, decode, read, reader, scores, text
from ..values import QueueCounts
from .tables import PAGE

_COUNTS: Final = reader(QueueCounts)

LOOKED_AT: Final = 500
"""Jobs that a search looks at for one page."""
SORTED: Final = 250
"""The longest list that is sorted by its columns."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the address asks for. `state` is one of `shown.STATES` or empty."""

    state: str = ""
    queue: str = ""
    klass: str = ""
    tag: str = ""
    group: str = ""
    worker: str = ""
    tracked: bool = False
    q: str = ""

    @classmethod
    def of(cls, given: Any) -> Scope:
        """From a query; names are tokens."""
        texts = {key: name_of(given.get(key, "")) for key in ("queue", "tag", "group", "worker")}
        return cls(
            state=given.get("state", ""),
            klass=given.get("klass", "").strip(),
            tracked="tracked" in given,
            q=given.get("q", "").strip(),
            **texts,
        )

    def only(self, *names: str) -> bool:
        """Whether nothing else is asked for."""
        return all(not getattr(self, key) for key in self.__slots__ if key not in names)

    def fits(self, job: Job, now: float) -> bool:
        if self.state == "stalled":
            right = job.state == "stalled" or (job.state == "running" and job.expires_at <= now)
        else:
            right = not self.state or job.state == self.state
        if self.state == "running":
            right = right and job.expires_at > now
        return (
            right
            and (not self.queue or job.queue_name == self.queue)
            and (not self.klass or job.klass == self.klass)
            and (not self.tag or self.tag in job.tags)
            and (not self.worker or job.worker_name == self.worker)
            and (not self.group or job.failure.get("group") == self.group)
            and (not self.tracked or job.tracked)
            and (not self.q or _found(self.q.casefold(), job))
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Some jobs of a list: the whole list has `total` (None: nobody knows), and goes on at `cursor`."""

    jobs: Sequence[Job]
    total: int | None = None
    cursor: str = ""
    looked_at: int = 0
    gone: Sequence[str] = field(default_factory=tuple)
    """Jids that the list has, of jobs that are not there any more."""


class Source:
    """The list that a scope names: `total`, `jids`; `exact`: all jobs of the list are of the scope."""

    def __init__(self, client: Any, scope: Scope) -> None:
        self.client = client
        self.scope = scope
        self._jids: Callable[[int, int], list[str]] = lambda start, count: []
        self.listed = True
        self.total: Callable[[], int] = lambda: 0
        self.exact = True
        if scope.group:
            group = scope.group
            self._use(
                "group",
                lambda: failures(client, group, 0, 1)[0],
                lambda start, count: failures(client, group, start, count)[1],
            )
        elif scope.tag:
            self._use("tag", lambda: client.jobs.tagged(scope.tag, 0, 1).total, self._tagged)
        elif scope.worker:
            self._use("worker", lambda: len(self._held()), lambda start, count: self._held()[start : start + count])
        elif scope.tracked:
            self._use("tracked", lambda: plain(client, "ZCARD", "tracked"), self._ranged("tracked"))
        elif scope.queue and scope.state in ("waiting", "running", "stalled", "scheduled", "depends"):
            queue = client.queues[scope.queue]
            jobs = getattr(queue.jobs, scope.state)
            self._use("queue", lambda: getattr(queue.counts(), scope.state), jobs, "state")
        elif scope.state == "complete":
            self._use("state", lambda: plain(client, "ZCARD", "completed"), client.jobs.complete)
        elif scope.only("state") and scope.state == "failed":
            self._use("state", lambda: sum(client.jobs.failed().values()), self._all_failed)
        else:
            self.exact = self.listed = False

    @property
    def counted(self) -> bool:
        """Whether all jobs of the list can be gone through, by their number."""
        return self.exact and not self.scope.tracked and not self.scope.worker

    def _use(self, key: str, total: Callable[[], int], jids: Callable[[int, int], list[str]], *more: str) -> None:
        self.total, self._jids = total, jids
        self.exact = self.scope.only(key, *more)

    def _all_failed(self, start: int, count: int) -> list[str]:
        """Group after group."""
        found: list[str] = []
        for group, length in sorted(self.client.jobs.failed().items()):
            if start < length and len(found) < count:
                found += failures(self.client, group, start, count - len(found))[1]
            start = max(0, start - length)
        return found

    def _tagged(self, start: int, count: int) -> list[str]:
        return list(self.client.jobs.tagged(self.scope.tag, start, count).jobs)

    def _held(self) -> list[str]:
        found = self.client.workers[self.scope.worker]
        return list(dict.fromkeys((*found.stalled, *found.jobs)))

    def _ranged(self, key: str) -> Callable[[int, int], list[str]]:
        return lambda start, count: plain(self.client, "ZRANGE", key, start, start + count - 1)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def page(self, start: int, count: int = PAGE) -> Part:
        """Of an exact list."""
        total = self.total()
        jids = self._jids(start, count) if total else []
        jobs, gone = fetched(self.client, jids)
        return Part(jobs, total, gone=gone)

    def jids(self, start: int, count: int) -> list[str]:
        return self._jids(start, count)

    def whole(self, total: int) -> list[Job]:
        """All jobs of an exact list, if it is short."""
        jids = [jid for start in range(0, min(total, SORTED), PAGE) for jid in self._jids(start, PAGE)]
        return fetched(self.client, jids)[0]

    def walk(self, cursor: str) -> Part:
        """Jobs of a list that is looked through, from a cursor on, until a page is full or enough was looked at."""
        found: list[Job] = []
        now, looked = self.client.clock(), 0
        while looked < LOOKED_AT and len(found) < PAGE:
            jids, cursor, seen = self._chunk(cursor)
            looked += seen
            found += [job for job in fetched(self.client, jids)[0] if self.scope.fits(job, now)]
            if not cursor:
                break
        return Part(found, None, cursor, looked)

    def _chunk(self, cursor: str) -> tuple[list[str], str, int]:
        if self.listed:
            start = int(cursor) if cursor.isascii() and cursor.isdigit() else 0
            jids = self._jids(start, PAGE)
            return jids, str(start + PAGE) if len(jids) == PAGE else "", len(jids)
        state = {"stalled": "running"}.get(self.scope.state, self.scope.state)
        part = self.client.jobs.search(
            state=state or None,
            klass=self.scope.klass or None,
            queue=self.scope.queue or None,
            count=PAGE,
            scan=LOOKED_AT // 2,
            cursor=cursor,
        )
        bounded = bool(self.scope.klass or self.scope.queue)
        return part.jobs, part.cursor, LOOKED_AT // 2 if bounded and len(part.jobs) < PAGE else len(part.jobs)


def fetched(client: Any, jids: Sequence[str]) -> tuple[list[Job], list[str]]:
    """The jobs with these jids, in their order, a page of them in each call; and the jids of those that are gone."""
    chunks = [("multiget", *jids[start : start + PAGE]) for start in range(0, len(jids), PAGE)]
    jobs: list[Job] = []
    for reply in client.call_many(chunks) if chunks else ():
        if isinstance(reply, Exception):
            raise reply
        jobs += job_list(client, reply)
    there = {job.jid for job in jobs}
    return jobs, [jid for jid in jids if jid not in there]


def failures(client: Any, group: str, start: int, count: int) -> tuple[int, list[str]]:
    """How many jobs a group of failures has, and the jids asked for, newest first. `count` is at least 1."""
    found = decode(text(client.call("failed", group, start, count)))
    return found["total"], as_list(found["jobs"])


def queue_counts(client: Any) -> list[QueueCounts]:
    """The jobs of all queues by state: a call for each, so that a thousand queues do not hold the server."""
    names = plain(client, "ZRANGE", "queues", 0, -1)
    replies = client.call_many([("queues", name) for name in names]) if names else []
    return [read(reply, _COUNTS) for reply in replies if not isinstance(reply, Exception)]


def plain(client: Any, command: str, key: str, *args: Any) -> Any:
    """A command of the server on a key of the queue; its texts decoded."""

    reply = _asked(client, command, key, *args)
    flat = isinstance(reply, list) and all(isinstance(each, bytes) for each in reply)
    return [text(each) for each in reply] if flat else reply


def scored(client: Any, command: str, key: str, start: int, end: int) -> dict[str, float]:
    """Members of a sorted set with their scores, in order."""
    return scores(_asked(client, command, key, start, end, "WITHSCORES"))


def _asked(client: Any, command: str, key: str, *args: Any) -> Any:
    def steps() -> Steps[Any]:
        return (yield Plain((command, client.prefix + key, *args)))

    return client.run(steps())


def _found(words: str, job: Job) -> bool:
    return any(words in part.casefold() for part in _texts(job))


def _texts(job: Job) -> Iterator[str]:
    yield from (job.jid, job.klass, job.txid or "", *map(str, job.tags))
    try:
        failure = job.failure
    except QlessError:
        return
    yield from (str(failure.get("group", "")), str(failure.get("message", "")))


__all__ = ["LOOKED_AT", "SORTED", "Part", "Scope", "Source", "failures", "fetched", "plain", "queue_counts", "scored"]
