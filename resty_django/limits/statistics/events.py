"""Events of a limit (a time, a key, an outcome, perhaps a request) as compressed bytes of bounded size. Pure.

If there are too many events, only some keys are kept: the keys whose hash begins with `level` zero bits. So
the events of a kept key are complete, and the share of the keys is 1 / 2 ** level.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

Event: TypeAlias = tuple[int, str, int]
"""Milliseconds since the epoch, a key, and an outcome."""
UNKNOWN: Final = -1
"""The duration of a request that was not measured. Smaller numbers contain its delay: see `delay_code`."""


def delay_code(seconds: float) -> int:
    """Return the `duration` of a request that was not measured, but was delayed."""
    return UNKNOWN - max(1, round(seconds * 1000))


class Request(NamedTuple):
    """An event with the method and the route of its request ("GET api/items/<int:pk>/").

    `duration`: the milliseconds for which it ran, `UNKNOWN`, or a `delay_code`.
    """

    time: int
    key: str
    outcome: int
    target: str = ""
    duration: int = UNKNOWN

    @property
    def measured(self) -> bool:
        """Whether its duration was measured."""
        return self.duration >= 0

    @property
    def delay(self) -> int | None:
        """The milliseconds of its delay; None if they were not recorded."""
        return UNKNOWN - self.duration if self.duration < UNKNOWN else None


E = TypeVar("E", bound=tuple[Any, ...])

PASSED: Final = 0
DELAYED: Final = 1
REFUSED: Final = 2
SHADOWED: Final = 3
"""Outcomes. `SHADOWED`: the request passed, but an enforced limit would have refused it."""
MOST_BLOCKS: Final = 32
"""The maximum number of blocks of a log of the newest events."""
DEEPEST: Final = 32
"""The maximum level."""
FULL: Final = 0.75
"""The share of the maximum number of bytes above which merged blocks count as too many."""

_encode: Final = msgspec.msgpack.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, zlib.error, TypeError, ValueError, IndexError)


class EventLog(NamedTuple):
    """Events in compressed blocks. `total`: the number of events."""

    level: int = 0
    total: int = 0
    blocks: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes of the blocks."""
        return sum(map(len, self.blocks))

    def events(self) -> list[Event]:
        """Return the events, in the order of the blocks. Unreadable blocks have none."""
        return [request[:3] for request in self.requests()]

    def requests(self) -> list[Request]:
        """Return the events with what was requested."""
        return [request for block in self.blocks for request in _unpacked(block)]

    def of_keys(self, matches: Callable[[str], bool], texts: Collection[str]) -> list[Request]:
        """Return the events of matching keys. Takes less time than `requests`.

        `texts`: each matching key contains one of them.
        """
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        return [request for block in self.blocks for request in _unpacked(block, matches, parts)]

    def packed(self) -> bytes:
        """Return the log as bytes for `read_log`."""
        return _encode(self)

    def added(self, events: Sequence[Event | Request], level: int, most: int, most_bytes: int) -> EventLog:
        """Return a log with more events, of at most `most` events and `most_bytes` bytes; `level`: their sampling.

        If it would be too large, its blocks are merged. If that is not enough, the level rises.
        """
        log = EventLog(max(self.level, level), *self[1:])
        kept: list[Any] = sampled(events, log.level) if log.level > level else list(events)
        log = log._replace(total=log.total + len(kept), blocks=(*log.blocks, _packed(kept)) if kept else log.blocks)
        if log.level == self.level and log.total <= most and log.size <= most_bytes:
            return log
        kept = sampled(log.requests(), log.level)
        while True:
            log = EventLog(log.level, len(kept), (_packed(kept),) if kept else ())
            if (log.total <= most and log.size <= FULL * most_bytes) or log.level >= DEEPEST:
                return log
            log = log._replace(level=log.level + 1)
            kept = sampled(kept, log.level)


def read_log(packed: Any) -> EventLog:
    """Return the log that `packed` wrote; an empty one for None and for foreign data."""
    if not isinstance(packed, bytes):
        return EventLog()
    try:
        level, count, blocks = msgspec.msgpack.decode(packed, type=tuple[int, int, tuple[bytes, ...]])
    except _UNREADABLE:
        return EventLog()
    return EventLog(min(max(level, 0), DEEPEST), count, blocks)


def is_sampled(key: str, level: int) -> bool:
    """Return whether the events of a key are kept at that level. A key that is kept is also kept at lower levels."""
    return not zlib.crc32(key.encode("utf-8", "surrogatepass")) >> (32 - level)


def sampled(events: Iterable[E], level: int) -> list[E]:
    """Return the events of the keys that are kept at that level."""
    if not level:
        return list(events)
    kept: dict[str, bool] = {}
    result = []
    for event in events:
        key = event[1]
        keep = kept.get(key)
        if keep is None:
            keep = kept[key] = is_sampled(key, level)
        if keep:
            result.append(event)
    return result


def newest_of(events: Iterable[Event], *, oldest: int, most: int, each: int) -> list[Event]:
    """Return events from the time `oldest` on, in their order: the newest `each` of every key, and `most` in all."""
    kept: list[Event] = []
    counts: dict[str, int] = {}
    for event in sorted(events, key=itemgetter(0), reverse=True):
        if event[0] < oldest or len(kept) >= most:
            break
        count = counts[event[1]] = counts.get(event[1], 0) + 1
        if count <= each:
            kept.append(event)
    kept.reverse()
    return kept


def with_newest(
    events: Iterable[Event], log: EventLog, *, oldest: int, most: int, each: int, most_bytes: int
) -> EventLog:
    """Return a log with more events, without those that `newest_of` drops, and of at most `most_bytes` bytes.

    Events are only dropped if there are many, because that takes longer.
    """
    added = newest_of(events, oldest=oldest, most=most, each=each)
    if not added:
        return log
    log = EventLog(0, log.total + len(added), (*log.blocks, _packed(added)))
    if log.total <= 2 * most and len(log.blocks) <= MOST_BLOCKS and log.size <= most_bytes:
        return log
    kept = newest_of(log.events(), oldest=oldest, most=most, each=each)
    while kept:
        block = _packed(kept)
        if len(block) <= FULL * most_bytes:
            return EventLog(0, len(kept), (block,))
        kept = kept[len(kept) // 4 + 1 :]
    return EventLog()


def _packed(events: Iterable[Event | Request]) -> bytes:
    """Return events by time, in columns that compress well: differences of times, positions of keys and targets.

    The columns of targets and durations are empty if all are unknown.
    """
    ordered = [Request(*event) for event in sorted(events, key=itemgetter(0))]
    keys, places = _positions(request.key for request in ordered)
    targets, target_places = _positions(request.target for request in ordered)
    durations = [request.duration for request in ordered]
    times = [request.time for request in ordered]
    columns = (
        times[0],
        keys,
        places,
        [time - before for before, time in pairwise(times)],
        bytes(request.outcome for request in ordered),
        *((targets, target_places) if targets != [b""] else ([], [])),
        durations if any(duration != UNKNOWN for duration in durations) else [],
    )
    return zlib.compress(_encode(columns), 1)


def _positions(texts: Iterable[str]) -> tuple[list[bytes], list[int]]:
    """Return the different texts, and the position of each text in them."""
    positions: dict[str, int] = {}
    places = [positions.setdefault(text, len(positions)) for text in texts]
    return [text.encode("utf-8", "surrogatepass") for text in positions], places


_Columns: TypeAlias = tuple[int, list[bytes], list[int], list[int], bytes, list[bytes], list[int], list[int]]
_decode: Final = msgspec.msgpack.Decoder(_Columns).decode


def _unpacked(
    block: bytes, matches: Callable[[str], bool] | None = None, parts: Collection[bytes] = ()
) -> list[Request]:
    """Return the events of a block. `matches`: leave out other keys; each matching key contains one of the `parts`."""
    try:
        packed = zlib.decompress(block)
        if matches is not None and not any(part in packed for part in parts):
            return []
        start, keys, places, differences, outcomes, targets, target_places, durations = _decode(packed)
        wanted: set[str] | None = None
        if matches is not None:
            wanted = set(filter(matches, (key.decode("utf-8", "surrogatepass") for key in keys)))
        columns_by_event = zip(
            accumulate(differences, initial=start),
            _texts(keys, places),
            outcomes,
            _texts(targets, target_places) if targets else [""] * len(places),
            durations or [UNKNOWN] * len(places),
            strict=True,
        )
        return [Request(*values) for values in columns_by_event if wanted is None or values[1] in wanted]
    except _UNREADABLE:
        return []


def _texts(texts: list[bytes], places: list[int]) -> list[str]:
    decoded = [text.decode("utf-8", "surrogatepass") for text in texts]
    return [decoded[place] for place in places]
