"""Lists of jids in Redis: which one fits a filter, its length, its parts, and the orders that it provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from ...clients.client import Client
from ...clients.replies import QueueCounts
from ..formatting import TAB_STATES
from ..redis_reads import failed_jids, redis_command, tracked_count
from .filters import JobFilter
from .merged import latest_failed, max_merged, most_urgent


@dataclass(frozen=True, slots=True)
class ListOrder:
    """An order of a list, and how pages name it. `column`: the column that it sorts by, if it is one."""

    text: str | Promise
    reversed_text: str | Promise
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
    all_text: str | Promise


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
URGENT_STATES: Final = ("stalled", "running", "waiting", "scheduled", "depends")
"""The states of jobs in queues, the most urgent first."""


def source_of(client: Client, job_filter: JobFilter) -> ListSource | None:
    """Return the list in Redis that fits a filter best; None if there is none, and all jobs must be searched."""
    state = job_filter.state
    if group := job_filter.group:
        return ListSource(
            ("group",), NEWEST_FIRST, lambda: failed_jids(client, group, 0, 1)[0], partial(_failed, client, group)
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
            lambda: tracked_count(client),
            lambda start, count: list(redis_command(client, "ZREVRANGE", "tracked", start, start + count - 1)),
            countable=False,
        )
    if job_filter.queue and state in TAB_STATES:
        queue = client.queues[job_filter.queue]
        return ListSource(
            ("queue", "state"),
            STATE_ORDERS[state],
            lambda: getattr(queue.counts(), state),
            partial(queue.jobs.in_state, state),
        )
    if state == "complete":
        return _complete(client)
    if state == "failed" and job_filter.only("state"):
        return _all_failed(client)
    if state in TAB_STATES and job_filter.only("state"):
        return _of_queues(client, state, client.queues.counts())
    return _all_jobs(client) if job_filter.only() else None


def _complete(client: Client) -> ListSource:
    """Return the complete jobs, the latest first."""
    count = partial(redis_command, client, "ZCARD", "completed")
    return ListSource(("state",), NEWEST_FIRST, count, client.jobs.complete)


def _all_failed(client: Client) -> ListSource:
    """Return the jobs of all failure groups: the latest failures first, or all by the groups' names."""
    groups = sorted(client.jobs.failed())
    return ListSource(
        ("state",),
        ListOrder(_("By failure group"), _("By failure group, the last one first"), "group"),
        lambda: sum(client.jobs.failed().values()),
        lambda start, count: _across(
            ((length, partial(_failed, client, group)) for group, length in sorted(client.jobs.failed().items())),
            start,
            count,
        ),
        first_jobs=FirstJobs(
            NEWEST_FIRST,
            max_merged(len(groups)),
            lambda count, reverse: latest_failed(client, groups, count, reverse),
            _("All of them, by failure group"),
        ),
    )


def _of_queues(client: Client, state: str, queues: Sequence[QueueCounts]) -> ListSource:
    """Return the jobs in a state of all `queues`: the most urgent first, or all by queue."""
    lengths = {queue.name: length for queue in queues if (length := getattr(queue, state))}
    counts = dict(sorted(lengths.items()))
    return ListSource(
        ("state",),
        ListOrder(_("By queue"), _("By queue, the last one first"), "queue"),
        lambda: sum(counts.values()),
        lambda start, count: _across(
            ((length, partial(client.queues[name].jobs.in_state, state)) for name, length in counts.items()),
            start,
            count,
        ),
        countable=False,
        first_jobs=FirstJobs(
            STATE_ORDERS[state],
            max_merged(len(counts)),
            lambda count, reverse: most_urgent(client, state, list(counts), count, reverse),
            _("All of them, by queue"),
        ),
    )


def _all_jobs(client: Client) -> ListSource:
    """Return all jobs: by state, within a state the most urgent or latest ones first, or all by state and queue."""
    queues = client.queues.counts()
    parts = [_of_queues(client, state, queues) for state in URGENT_STATES]
    parts += [_all_failed(client), _complete(client)]
    lengths = [part.total() for part in parts]

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
        ListOrder(_("By state"), _("By state, the least urgent first"), "state"),
        lambda: sum(lengths),
        lambda start, count: _across(zip(lengths, (part.jids for part in parts), strict=True), start, count),
        countable=False,
        first_jobs=FirstJobs(
            ListOrder(_("The most urgent first, completed jobs last"), _("Completed jobs first, the most urgent last")),
            min(part.first_jobs.most for part in parts if part.first_jobs),
            first_jids,
            _("All of them, by state"),
        ),
    )


def _failed(client: Client, group: str, start: int, count: int) -> list[str]:
    return failed_jids(client, group, start, count)[1]


def _across(parts: Iterable[tuple[int, Callable[[int, int], list[str]]]], start: int, count: int) -> list[str]:
    """Return a part of several lists, one after the other. `parts`: the length of each, and its function of a start and
    a count."""
    jids: list[str] = []
    for length, part in parts:
        if start < length and len(jids) < count:
            jids += part(start, min(count - len(jids), length - start))
        start = max(0, start - length)
    return jids


def _worker_jids(client: Client, name: str) -> list[str]:
    worker = client.workers[name]
    return list(dict.fromkeys((*worker.stalled, *worker.jobs)))
