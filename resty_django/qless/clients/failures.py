"""Failure groups without their jobs: counts and times, for pages and checks that show many groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .serialization import read, reader
from .transport import checked

if TYPE_CHECKING:
    from .client import Client

GROUPS_PER_CALL: Final = 25
"""Number of groups in one call, so that no call blocks the server for long."""


class LatestFailures(msgspec.Struct, frozen=True, kw_only=True):
    """The latest jobs of a failure group. Times are in epoch seconds, 0 if they are not known.

    - `total`: the number of jobs of the group.
    - `times`: when the latest jobs failed, newest first; `first`: when the oldest job did.
    - `classes`: the classes of these latest jobs.
    - `message`: the last 2000 bytes of the newest job's message.
    """

    total: int
    times: list[float]
    classes: list[str] | dict[str, Any]
    message: str
    first: float


class FailuresBetween(msgspec.Struct, frozen=True, array_like=True):
    """The number of jobs of a group that failed in a span, and when the first and the last of them did."""

    count: int
    first: float
    last: float


_LATEST: Final = reader(list[LatestFailures])
_BETWEEN: Final = reader(list[FailuresBetween])


def latest_failures(client: Client, groups: Sequence[str], count: int = 25) -> dict[str, LatestFailures]:
    """Return the latest `count` (at most 25) jobs of each group. Raises `QlessError`, `StoreError`."""
    chunks = [*_chunks(groups)]
    replies = client.call_many([("failures.latest", count, *chunk) for chunk in chunks]) if chunks else []
    records = [record for reply in replies for record in read(checked(reply), _LATEST)]
    return dict(zip(groups, records, strict=True))


def failures_between(
    client: Client, groups: Iterable[str], start: float, end: float = 1e12
) -> dict[str, FailuresBetween]:
    """Return the failures from `start` until before `end` (epoch seconds) by group, for the groups that have some.

    Only jobs that are still in the group count. Raises `QlessError`, `StoreError`.
    """
    names = list(groups)
    chunks = [*_chunks(names)]
    replies = client.call_many([("failures.between", start, end, *chunk) for chunk in chunks]) if chunks else []
    results = [result for reply in replies for result in read(checked(reply), _BETWEEN)]
    return {group: result for group, result in zip(names, results, strict=True) if result.count}


def _chunks(groups: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(groups), GROUPS_PER_CALL):
        yield groups[first : first + GROUPS_PER_CALL]
