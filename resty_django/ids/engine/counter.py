"""A counter in memory: its segments, the view that answers requests, and when it reserves more.

The request path takes no lock and does not use the database: `next()` on the iterator of a reserved range returns each
number to one thread only. A view ties that iterator to the text of the current time and to one cycle, so that no
number is combined with the date of another cycle. Everything else happens in `_turn`, under a lock and without I/O.

The iterator of a range is atomic under the global interpreter lock; free-threaded builds are not supported.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from operator import call, length_hint
from time import monotonic
from typing import Protocol

from ..errors import IdError, Unavailable
from .cycle import Cycle
from .rule import MAX_TAKES, Compiled, ScriptRule, Shape
from .segment import Grant
from .wall_clock import wall_at

Clock = Callable[[], float]
CLOCK_CHANGE_SECONDS = 900
"""Daylight saving changes happen at multiples of this number of seconds."""
GROW_BELOW, SHRINK_ABOVE = 1.0, 60.0
"""A segment that lasts less than the first number of seconds doubles the next one; more than the second halves it."""


class SegmentReserver(Protocol):
    """Makes reservations outside the request path."""

    def order(self, counter: Counter) -> Future[None]:
        """Reserve `counter.want` numbers and call `counter.deliver` or `counter.refuse`, then complete the future."""
        ...


class Retired(Exception):
    """The counter was closed because the rule changed or the service stopped. Get a new one from the service."""


class _Turned(Exception):
    """The cycle ended while a script was taking its numbers."""


class Segment:
    """Reserved numbers in two halves: when the first half is used up, the next segment is ordered."""

    __slots__ = ("cycle", "halves", "reserved", "shown", "since")

    def __init__(self, grant: Grant) -> None:
        self.reserved = grant.numbers
        half = (len(grant.numbers) + 1) // 2
        self.halves: tuple[Iterator[int], Iterator[int]] = (iter(grant.numbers[:half]), iter(grant.numbers[half:]))
        self.cycle: Cycle = grant.cycle
        self.shown = grant.shown
        self.since = monotonic()

    @property
    def left(self) -> int:
        return length_hint(self.halves[0]) + length_hint(self.halves[1])

    @property
    def numbers(self) -> Iterator[int]:
        """The half that is currently in use."""
        first, second = self.halves
        return first if length_hint(first) else second

    def drain(self) -> range:
        """Take all remaining numbers at once; return an empty range if they are not the segment's tail."""
        end = len(self.reserved)
        # All four calls run in C without switching threads: the rest is read and taken in one atomic step.
        steps = [step for half in self.halves for step in (half.__reduce__, partial(half.__setstate__, end))]  # type: ignore[attr-defined]
        states = [*map(call, steps)]
        remainders = [_rest(state) for state in states[::2]]
        count = sum(map(len, remainders))
        tail = self.reserved[end - count :]
        ends = [number for numbers in remainders if numbers for number in (numbers[0], numbers[-1])]
        return tail if ends and (ends[0], ends[-1]) == (tail[0], tail[-1]) else range(0)


def _rest(state: tuple[object, tuple[range], int | None]) -> range:
    """Return the remaining numbers of a range iterator from the result of its `__reduce__`."""
    _, (numbers,), index = state
    remainder: range = numbers[index or 0 :]
    return remainder


class View:
    """A period in which the numbers from one half of a segment have the same text around them.

    Valid while the clock is below `until` (epoch seconds). Where the rule allows it, `texts` yields the IDs for
    `numbers` without running Python code.
    """

    __slots__ = ("numbers", "plain", "render", "segment", "texts", "until", "wall")

    def __init__(self, segment: Segment | None, wall: int, until: float, shape: Shape) -> None:
        self.segment = segment
        self.numbers: Iterator[int] = segment.numbers if segment else iter(())
        self.wall = wall
        self.until = until
        self.render = shape.render
        self.plain = shape.printf is not None
        self.texts: Iterator[str] = map(shape.printf.__mod__, self.numbers) if shape.printf is not None else iter(())


_NO_VIEW = View(None, 0, -math.inf, Shape(None, lambda number, salt: ""))


class Counter:
    """The numbers of one rule and application name in this process.

    `clock` returns epoch seconds. `shown` is the highest wall second shown so far. `rule_id` is the rule's key in the
    store. `reported` is the part of `issued` that the store knows. Thread-safe.
    """

    def __init__(
        self,
        rule: Compiled,
        app: str,
        reserver: SegmentReserver,
        clock: Clock,
        *,
        max_segment: int,
        shown: int | None = None,
        rule_id: int = 0,
    ) -> None:
        self.rule = rule
        self.rule_id = rule_id
        self.app = app
        self._least = min(rule.spec.segment_size, max_segment)
        self.want = self._least
        self.known = False
        self.last: int | None = None
        self.reported = 0
        self._reserver = reserver
        self._clock = clock
        self._max_segment = max_segment
        self._shown = shown
        self._lock = threading.Lock()
        self._view = _NO_VIEW
        self._segment: Segment | None = None
        self._spare: Segment | None = None
        self._pending: Future[None] | None = None
        self._ordered = 0.0
        self._issued_at_order = 0
        self._starved = 0
        self._refusal: tuple[IdError, float] | None = None
        self._reserved = 0
        self._dropped = 0
        self._closed = False

    # --- requests for IDs -------------------------------------------------------------------------------------------

    def attempt(self, salt: str = "") -> str | None:
        """Return the next ID, or None if the caller must wait for a segment (see `refill`).

        Raise Retired if the counter was closed.
        """
        view = self._view
        if self._clock() < view.until:
            text = next(view.texts, None)
            if text is not None:
                return text
        ids = self.attempt_many(1, salt)
        return ids[0] if ids else None

    def attempt_many(self, count: int, salt: str = "") -> list[str]:
        """Return up to `count` IDs; fewer, or none, if the caller must wait for a segment.

        Raise Retired if the counter was closed before the first ID.
        """
        rule = self.rule
        if rule.needs_salt:
            rule.check_salt(salt)
        ids: list[str] = []
        while len(ids) < count:
            view = self._view
            if self._clock() >= view.until or not length_hint(view.numbers):
                with self._lock:
                    if (ids and self._closed) or not self._turn(self._clock()):
                        break
                continue
            if isinstance(rule, ScriptRule):
                try:
                    ids.append(rule.create(lambda: self._take(view), view.wall, salt))  # noqa: B023
                except _Starved:
                    self.want = min(max(self.want * 2, MAX_TAKES), self._max_segment)
                except _Turned:
                    pass
                except Retired:
                    if not ids:
                        raise
                    break
                continue
            missing = count - len(ids)
            if view.plain:
                ids += islice(view.texts, missing)
            else:
                ids += [view.render(number, salt) for number in islice(view.numbers, missing)]
        return ids

    def refill(self, patience: float, missing: int = 1) -> Future[None]:
        """Order a segment, or join the pending order; the future is done if a segment has arrived in the meantime.

        `missing` is the count of numbers the caller lacks; numbers missing during a reservation enlarge the next one.
        For a while after a refused order, raise its error. Raise Unavailable if the pending order has already taken
        more than `patience` seconds.
        """
        with self._lock:
            if self._closed:
                raise Retired
            if self._refusal is not None:
                error, until = self._refusal
                if monotonic() < until:
                    raise error.with_traceback(None)
                self._refusal = None
            if self._segment is not None and self._segment.left:
                came: Future[None] = Future()
                came.set_result(None)
                return came
            if self._pending is not None and monotonic() - self._ordered > patience:
                self._starved += missing
                raise unavailable()
            order = self._order()
            self._starved += missing
            return order

    # --- calls by the reserver --------------------------------------------------------------------------------------

    def deliver(self, grant: Grant) -> bool:
        """Add a reserved segment. Return False if the counter was closed in the meantime and cannot use it."""
        with self._lock:
            self._pending = None
            if self._closed:
                return False
            self._cover()
            self.known = True
            self._refusal = None
            self._reserved += len(grant.numbers)
            segment = Segment(grant)
            current = self._segment
            if current is not None and current.cycle == segment.cycle and current.left:
                if self._spare is not None:
                    self._dropped += self._spare.left
                self._spare = segment
            else:
                if current is not None:
                    self.last = self.position
                    self._dropped += current.left
                self._segment, self._spare = segment, None
                self._view = _NO_VIEW
            return True

    def refuse(self, error: IdError, seconds: float) -> None:
        """Record that the reservation failed with `error`, and accept no new order for `seconds`."""
        with self._lock:
            self._pending = None
            self._refusal = (error, monotonic() + seconds)
            if self._segment is not None and self._segment.left:
                self._view = _NO_VIEW

    def close(self) -> list[tuple[Cycle, range]]:
        """Stop issuing numbers. Return the unused tails as (cycle, numbers), the last reserved first."""
        with self._lock:
            self._closed = True
            self._view = _NO_VIEW
            tails = []
            for segment in (self._spare, self._segment):
                if segment is not None:
                    self._dropped += segment.left
                    tail = segment.drain()
                    if tail:
                        tails.append((segment.cycle, tail))
            self._segment = self._spare = None
            return tails

    # --- monitoring ---------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def shown(self) -> int | None:
        return self._shown

    @property
    def remaining(self) -> int:
        """The count of reserved numbers not issued yet."""
        segment, spare = self._segment, self._spare
        return (segment.left if segment else 0) + (spare.left if spare else 0)

    @property
    def issued(self) -> int:
        """The count of numbers issued by this process."""
        return self._reserved - self._dropped - self.remaining

    @property
    def position(self) -> int | None:
        """The last number issued by this process, or None."""
        segment = self._segment
        if segment is None:
            return self.last
        used = len(segment.reserved) - segment.left
        return segment.reserved[used - 1] if used else self.last

    # --- internals ---------------------------------------------------------------------------------------------------

    def _turn(self, now: float) -> bool:
        """Make the view valid for `now`. Return False if that requires a new segment. The caller holds the lock."""
        if self._closed:
            raise Retired
        segment = self._segment
        if segment is None:
            return False
        real = wall_at(now, self.rule.spec.zone)
        wall = max(real, segment.shown, segment.cycle.start, self._shown if self._shown is not None else real)
        if wall >= segment.cycle.end:
            self._drop(segment)
            return False
        if not segment.left:
            self.last = segment.reserved[-1]
            segment_next, self._spare = self._spare, None
            if segment_next is None:
                self._segment = None
                return False
            segment_next.since = monotonic()
            self._segment = segment = segment_next
            wall = max(wall, segment.shown)
        self._shown = wall
        unit = self.rule.resolution
        ends = min(wall // unit * unit + unit, segment.cycle.end)
        until: float = math.floor(now) + max(1, min(ends - real, CLOCK_CHANGE_SECONDS - real % CLOCK_CHANGE_SECONDS))
        if self._waiting():
            until = min(until, now + 1)
        elif self._spare is None and not length_hint(segment.halves[0]):
            self._order()
        self._view = View(segment, wall, until, self.rule.shape(wall, self.app))
        return True

    def _waiting(self) -> bool:
        """Return whether the last order was refused so recently that another one would fail, too."""
        return self._refusal is not None and monotonic() < self._refusal[1]

    def _drop(self, segment: Segment) -> None:
        self.last = self.position
        for old in (segment, self._spare):
            if old is not None:
                self._dropped += old.left
                old.drain()
        self._segment = self._spare = None
        self._view = _NO_VIEW

    def _take(self, view: View) -> int:
        """Return one number for a script that runs with the time of `view`; it must belong to the same cycle."""
        while True:
            number = next(view.numbers, None)
            if number is not None:
                return number
            with self._lock:
                if not self._turn(self._clock()):
                    raise _Starved
                if self._view.segment is None or view.segment is None:
                    raise _Turned
                if self._view.segment.cycle != view.segment.cycle:
                    raise _Turned
                view = self._view

    def _order(self) -> Future[None]:
        if self._pending is None:
            self._resize()
            self._issued_at_order = self.issued
            self._starved = 0
            self._ordered = monotonic()
            self._pending = self._reserver.order(self)
        return self._pending

    def _cover(self) -> None:
        """Enlarge the next segment if requests had to wait: to four times the numbers requested during a reservation.

        The segment after it is ordered when half of it is used, so that the other half lasts for two reservations. A
        reservation that takes longer than 10 seconds is an outage, which segments need not cover.
        """
        if not self._starved:
            return
        elapsed = monotonic() - self._ordered
        demand = self.issued - self._issued_at_order + self._starved
        demand = int(demand * min(1.0, 10.0 / elapsed)) if elapsed > 0 else demand
        if 2 * demand > self.want:
            self.want = max(self.want, min(4 * demand, self._max_segment))

    def _resize(self) -> None:
        """Adapt the next segment's size to the demand, between the rule's segment size and the site's maximum.

        `deliver` also does this if a reservation took longer than the numbers lasted.
        """
        if self._segment is None:
            return
        lasted = monotonic() - self._segment.since
        if lasted < GROW_BELOW:
            self.want = min(self.want * 2, self._max_segment)
        elif lasted > SHRINK_ABOVE:
            self.want = max(self.want // 2, self._least)


class _Starved(Exception):
    """The segments were used up while a script was running."""


def unavailable() -> Unavailable:
    """Return the error for a request that finds no reserved number."""
    return Unavailable("No reserved numbers are left and the database did not answer in time. Try again shortly.")
