"""Events of a limit (a time, a key, an outcome) as compressed bytes of bounded size. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from enum import IntEnum
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec


class EventOutcome(IntEnum):
    """The outcomes of refused requests. `SHADOWED`: it passed, but an enforced limit would have refused it."""

    REFUSED = 0
    SHADOWED = 1


class RefusalEvent(NamedTuple):
    """An event of a key, `time` milliseconds since the epoch. `txid`, `request`: see `StatsReporter.record`."""

    time: int
    key: str
    outcome: int
    txid: str = ""
    request: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, zlib.error, TypeError, ValueError, IndexError)


class EventLog(NamedTuple):
    """Events in compressed blocks. `total`: the number of events."""

    total: int = 0
    blocks: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes of the blocks."""
        return sum(map(len, self.blocks))

    def events(self) -> list[RefusalEvent]:
        """Return the events, in the order of the blocks. Unreadable blocks have none."""
        return [event for block in self.blocks for event in _unpacked(block)]

    def packed(self) -> bytes:
        """Return the log as bytes for `read_log`."""
        return _encode(self)


def read_log(packed: object) -> EventLog:
    """Return the log that `packed` wrote; an empty one for None and for foreign data."""
    if not isinstance(packed, bytes):
        return EventLog()
    try:
        return EventLog(*msgspec.msgpack.decode(packed, type=tuple[int, tuple[bytes, ...]]))
    except _UNREADABLE:
        return EventLog()


def newest_of(events: Iterable[RefusalEvent], *, oldest: int, most: int, each: int) -> list[RefusalEvent]:
    """Return events from the time `oldest` on, in their order: the newest `each` of every key, and `most` in all."""
    kept: list[RefusalEvent] = []
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
    events: Iterable[RefusalEvent], log: EventLog, *, oldest: int, most: int, each: int, most_bytes: int
) -> EventLog:
    """Return a log with more events, without those that `newest_of` drops, and of at most `most_bytes` bytes.

    Events are only dropped if there are many, because that takes longer.
    """
    added = newest_of(events, oldest=oldest, most=most, each=each)
    if not added:
        return log
    log = EventLog(log.total + len(added), (*log.blocks, _packed(added)))
    if log.total <= 2 * most and len(log.blocks) <= 32 and log.size <= most_bytes:
        return log
    kept = newest_of(log.events(), oldest=oldest, most=most, each=each)
    while kept:
        block = _packed(kept)
        if len(block) <= 0.75 * most_bytes:  # the rest is room for the next blocks
            return EventLog(len(kept), (block,))
        kept = kept[len(kept) // 4 + 1 :]
    return EventLog()


def _packed(events: Iterable[RefusalEvent]) -> bytes:
    """Return events by time, in columns that compress well: differences of times, and positions of keys."""
    times, keys, outcomes, txids, requests = zip(*sorted(events, key=itemgetter(0)), strict=True)
    columns = _Columns(
        times[0],
        *_distinct(keys),
        [time - before for before, time in pairwise(times)],
        bytes(outcomes),
        list(txids),
        *_distinct(requests),
    )
    return zlib.compress(_encode(columns), 1)


def _distinct(texts: Iterable[str]) -> tuple[list[bytes], list[int]]:
    """Return the different texts, and the position of each text among them."""
    positions: dict[str, int] = {}
    places = [positions.setdefault(text, len(positions)) for text in texts]
    return [text.encode("utf-8", "surrogatepass") for text in positions], places


class _Columns(msgspec.Struct, array_like=True):
    """The columns of a block. Blocks of earlier versions lack the last ones."""

    start: int
    keys: list[bytes]
    key_places: list[int]
    differences: list[int]
    outcomes: bytes
    txids: list[str] | None = None
    requests: list[bytes] = []
    request_places: list[int] = []


_decode: Final = msgspec.msgpack.Decoder(_Columns).decode


def _unpacked(block: bytes) -> list[RefusalEvent]:
    """Return the events of a block."""
    try:
        columns = _decode(zlib.decompress(block))
        parts = [
            accumulate(columns.differences, initial=columns.start),
            _texts(columns.keys, columns.key_places),
            columns.outcomes,
        ]
        if columns.txids is not None:
            parts += [columns.txids, _texts(columns.requests, columns.request_places)]
        return [RefusalEvent(*values) for values in zip(*parts, strict=True)]
    except _UNREADABLE:
        return []


def _texts(distinct: list[bytes], places: list[int]) -> list[str]:
    texts = [text.decode("utf-8", "surrogatepass") for text in distinct]
    return [texts[place] for place in places]
