"""Figures by queue and class over time: completions, failures, and percentiles of waiting and running times.

spans = client.figures.spans("minute", 60, klass="shop.tasks.send")  # of the last hour, the current minute last
spans[-1].runs.percentile(0.95)

Also failure groups without their jobs: counts and times, for pages and checks that show many groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from .serialization import LuaList, read_list, texts
from .transport import Steps, batches, checked, sync_and_async

if TYPE_CHECKING:
    from .client import Client

UNITS: Final = {"minute": 60, "hour": 3600, "day": 86_400}
"""Lengths of spans in seconds. Days are UTC days."""
KEPT_SPANS: Final = {"minute": 60, "hour": 48, "day": 30}
"""Number of the last spans that the core keeps."""
FAILURE_GROUPS_PER_CALL: Final = 25
"""Maximum number of failure groups in one call, so that no call blocks the server for long."""


@dataclass(frozen=True, slots=True)
class Durations:
    """A histogram of durations. `bins`: counts by bin; bin n begins at 2^(n/2) ms, and bin 0 at 0."""

    bins: Mapping[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(self.bins.values())

    def percentile(self, share: float) -> float | None:
        """Return the duration in seconds that this share does not exceed, interpolated in its bin; None without any."""
        wanted, cumulated = share * self.count, 0
        for number, count in sorted(self.bins.items()):
            if count and cumulated + count >= wanted:
                lower, upper = _lower_bound(number), _lower_bound(number + 1)
                return lower + (upper - lower) * max(0.0, wanted - cumulated) / count
            cumulated += count
        return None

    def __add__(self, other: Durations) -> Durations:
        return Durations(Counter(self.bins) + Counter(other.bins))


@dataclass(frozen=True, slots=True)
class JobTotals:
    """Jobs completed and failed, and the durations of runs that completed and of waiting until jobs were popped."""

    completed: int = 0
    failed: int = 0
    runs: Durations = field(default_factory=Durations)
    waits: Durations = field(default_factory=Durations)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A minute, an hour or a day.

    `start`: in epoch seconds. `by_name`: the totals by queue and class. If there are too many combinations, the core
    counts further events with an empty class; if there are too many queues, with both empty.
    """

    start: float
    by_name: Mapping[tuple[str, str], JobTotals]

    @property
    def totals(self) -> JobTotals:
        return summed(self.by_name.values())


@dataclass(frozen=True, slots=True)
class Throughput:
    """Jobs completed in each of the last 60 minutes, 48 hours and 30 days, the current one last."""

    minutes: list[int]
    hours: list[int]
    days: list[int]


class JobFigures:
    """`client.figures`."""

    __slots__ = ("client",)

    def __init__(self, client: Client) -> None:
        self.client = client

    def _spans(self, unit: str, count: int, *, queue: str = "", klass: str = "") -> Steps[list[TimeSpan]]:
        """Return the last `count` spans of a unit of `UNITS`, the current one last; of one queue, or of one class.

        Raises `QlessError`, `StoreError`.
        """
        seconds = UNITS[unit]
        present = int(self.client.clock() // seconds)
        numbers = range(present - count + 1, present + 1)
        chunks = batches(numbers, 15)  # so that no call blocks the server for long
        replies = yield [("figures", unit[0], chunk[0], queue, klass, len(chunk)) for chunk in chunks]
        fields = [fields for reply in replies for fields in checked(reply)]
        return [
            TimeSpan(number * seconds, read_fields(texts(fields_of_span)))
            for number, fields_of_span in zip(numbers, fields, strict=True)
        ]

    spans, aspans = sync_and_async(_spans)


def summed(totals: Iterable[JobTotals]) -> JobTotals:
    completed = failed = 0
    runs, waits = Counter[int](), Counter[int]()
    for each in totals:
        completed, failed = completed + each.completed, failed + each.failed
        runs.update(each.runs.bins)
        waits.update(each.waits.bins)
    return JobTotals(completed, failed, Durations(runs), Durations(waits))


def read_fields(fields: Sequence[str]) -> dict[tuple[str, str], JobTotals]:
    """Return the totals by queue and class in a reply of the core, fields and values in turn.

    Skip unreadable fields, which another program wrote.
    """
    failed = Counter[tuple[str, str]]()
    durations: dict[str, dict[tuple[str, str], Counter[int]]] = {"r": {}, "w": {}}
    for event, key, text in _events(fields):
        if not text.isdecimal():
            continue
        if event == "f":
            failed[key] += int(text)
        elif event[:1] in durations and event[1:].isdecimal():
            durations[event[0]].setdefault(key, Counter())[int(event[1:])] += int(text)
    runs, waits = durations["r"], durations["w"]
    empty: Counter[int] = Counter()
    return {
        key: JobTotals(
            runs.get(key, empty).total(), failed[key], Durations(runs.get(key, empty)), Durations(waits.get(key, empty))
        )
        for key in sorted({*failed, *runs, *waits})
    }


def _events(fields: Sequence[str]) -> Iterator[tuple[str, tuple[str, str], str]]:
    """Yield kind and bin, queue and class, and count; from fields of one event, and from packed fields."""
    for name, text in zip(fields[::2], fields[1::2], strict=False):
        event, _, names = name.partition("\n")
        queue, _, klass = names.partition("\n")
        if event == "c":
            for part in text.split():
                event, _, count = part.partition("=")
                yield event, (queue, klass), count
        else:
            yield event, (queue, klass), text


def by_class(spans: Iterable[TimeSpan]) -> dict[str, JobTotals]:
    """Return the totals of all spans by class."""
    parts: dict[str, list[JobTotals]] = {}
    for span in spans:
        for (_queue, klass), totals in span.by_name.items():
            parts.setdefault(klass, []).append(totals)
    return {klass: summed(totals) for klass, totals in parts.items()}


def completed_by_queue(spans: Sequence[TimeSpan], names: Iterable[str]) -> dict[str, list[int]]:
    """Return the jobs completed in each span, by queue, for the queues with these names."""
    counts = {name: [0] * len(spans) for name in names}
    for number, span in enumerate(spans):
        for (queue, _class), totals in span.by_name.items():
            if queue in counts:
                counts[queue][number] += totals.completed
    return counts


def _lower_bound(number: int) -> float:
    """Return the lower bound of a bin, in seconds."""
    return float(2 ** (number / 2) / 1000) if number > 0 else 0.0


class LatestFailures(msgspec.Struct, frozen=True, kw_only=True):
    """The latest jobs of a failure group. Times are in epoch seconds, 0 if they are not known.

    - `total`: the number of jobs of the group.
    - `times`: when the latest jobs failed, newest first; `first`: when the oldest job did.
    - `classes`: the classes of these latest jobs.
    - `message`: the last 2000 bytes of the newest job's message.
    """

    total: int
    times: list[float]
    classes: LuaList[str]
    message: str
    first: float


class FailuresBetween(msgspec.Struct, frozen=True, array_like=True):
    """The number of jobs of a group that failed in a span, and when the first and the last of them did."""

    count: int
    first: float
    last: float


def latest_failures(client: Client, groups: Sequence[str], count: int = 25) -> dict[str, LatestFailures]:
    """Return the latest `count` (at most 25) jobs of each group. Raises `QlessError`, `StoreError`."""
    chunks = batches(groups, FAILURE_GROUPS_PER_CALL)
    replies = client.call_many([("failures.latest", count, *chunk) for chunk in chunks]) if chunks else []
    records = [record for reply in replies for record in read_list(checked(reply), LatestFailures)]
    return dict(zip(groups, records, strict=True))


def failures_between(
    client: Client, groups: Iterable[str], start: float, end: float, *, most: int
) -> dict[str, FailuresBetween]:
    """Return the failures from `start` until before `end` (epoch seconds) by group, for the groups that have some.

    Stops after `most` groups. One call reads half of `most`, so it reads few groups in vain. Counts only jobs that
    are still in the group. Raises `QlessError`, `StoreError`.
    """
    found: dict[str, FailuresBetween] = {}
    for chunk in batches(list(groups), min(FAILURE_GROUPS_PER_CALL, -(-most // 2))):
        results = read_list(client.call("failures.between", start, end, *chunk), FailuresBetween)
        found.update((group, result) for group, result in zip(chunk, results, strict=True) if result.count)
        if len(found) >= most:
            break
    return dict(islice(found.items(), most))
