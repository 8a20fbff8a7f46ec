"""Reads from the job queue's Redis that several pages share: jobs by jid, counts, and plain commands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from resty_django.admin.tables import PAGE_SIZE

from ..clients.client import Client
from ..clients.job import Job, job_list
from ..clients.replies import QueueCounts
from ..clients.serialization import as_list, decode, read, scores, text
from ..clients.transport import RedisCommand, checked

T = TypeVar("T")


def fetch_jobs(client: Client, jids: Sequence[str]) -> tuple[list[Job], list[str]]:
    """Return the jobs with these jids in the same order, fetched in pages, and the jids of jobs that do not exist."""
    if len(jids) <= PAGE_SIZE:
        jobs = job_list(client, client.call("multiget", *jids)) if jids else []
    else:
        chunks = [("multiget", *jids[start : start + PAGE_SIZE]) for start in range(0, len(jids), PAGE_SIZE)]
        jobs = [job for reply in client.call_many(chunks) for job in job_list(client, checked(reply))]
    if len(jobs) == len(jids):
        return jobs, []
    found_jids = {job.jid for job in jobs}
    return jobs, [jid for jid in jids if jid not in found_jids]


def paged(part: Callable[[int, int], Sequence[T]]) -> Iterator[T]:
    """Yield the entries of a list, read one page at a time. `part`: takes start and count."""
    for start in itertools.count(0, PAGE_SIZE):
        entries = part(start, PAGE_SIZE)
        yield from entries
        if len(entries) < PAGE_SIZE:
            return


def failed_jids(client: Client, group: str, start: int, count: int) -> tuple[int, list[str]]:
    """Return the length of a failure group, and `count` (at least 1) of its jids from `start`, newest first."""
    reply = decode(text(client.call("failed", group, start, count)))
    return reply["total"], as_list(reply["jobs"])


def queue_counts(client: Client, names: Sequence[str]) -> list[QueueCounts]:
    """Return the job counts by state of these queues."""
    replies = client.call_many([("queues", name) for name in names]) if names else []
    return [read(reply, QueueCounts) for reply in replies if not isinstance(reply, Exception)]


def queue_names(client: Client) -> list[str]:
    """Return the names of all queues in the list, in the order of their creation."""
    return list(redis_command(client, "ZRANGE", "queues", 0, -1))


def is_listed(client: Client, queue: str) -> bool:
    """Return whether a queue is in the list of queues."""
    return redis_command(client, "ZSCORE", "queues", queue) is not None


def tracked_count(client: Client) -> int:
    """Return the number of tracked jobs."""
    return int(redis_command(client, "ZCARD", "tracked"))


def redis_command(client: Client, command: str, key: str, *args: Any) -> Any:
    """Run a Redis command on a key of the job queue and return its reply, with lists of bytes decoded."""
    reply = _run(client, command, key, *args)
    flat = isinstance(reply, list) and all(isinstance(member, bytes) for member in reply)
    return [text(member) for member in reply] if flat else reply


def sorted_set(client: Client, command: str, key: str, start: int, end: int) -> dict[str, float]:
    """Return the members of a sorted set with their scores, in order."""
    return scores(_run(client, command, key, start, end, "WITHSCORES"))


def _run(client: Client, command: str, key: str, *args: Any) -> Any:
    return client.perform(RedisCommand((command, client.prefix + key, *args)))
