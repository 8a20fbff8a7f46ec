"""Failure groups without their jobs: counts and times, for pages and checks that show many groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
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
    client: Client, groups: Iterable[str], start: float, end: float, *, most: int
) -> dict[str, FailuresBetween]:
    """Return the failures from `start` until before `end` (epoch seconds) by group, for the groups that have some.

    When it has found `most` of these, it does not read further groups. One call reads half of `most`, so few groups too
    many are read. Only jobs that are still in the group count. Raises `QlessError`, `StoreError`.
    """
    found: dict[str, FailuresBetween] = {}
    for chunk in _chunks(list(groups), min(GROUPS_PER_CALL, -(-most // 2))):
        results = read(checked(client.call("failures.between", start, end, *chunk)), _BETWEEN)
        found.update((group, result) for group, result in zip(chunk, results, strict=True) if result.count)
        if len(found) >= most:
            break
    return dict(islice(found.items(), most))


def _chunks(groups: Sequence[str], size: int = GROUPS_PER_CALL) -> Iterator[Sequence[str]]:
    for first in range(0, len(groups), size):
        yield groups[first : first + size]
