"""A store in memory and a reserver that works on command: counters are tested on them without a database.

The store decides by the same pure functions as the real one and writes by compare-and-set, so that what happens
between the reading and the writing of a row can be played.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from resty_django.ids.engine.counter import Counter
from resty_django.ids.engine.rule import RuleSpec, compile_rule
from resty_django.ids.engine.segment import CounterRow, Grant, give_back, reserve
from resty_django.ids.engine.wall_clock import wall_at
from resty_django.ids.errors import IdError, Unavailable

Clock = Callable[[], float]


class MemoryStore:
    """The rows of all counters, by application name and node."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], CounterRow] = {}
        self.grants: list[tuple[str, int, Grant]] = []
        self.down = False

    def reserve(
        self,
        spec: RuleSpec,
        app: str,
        *,
        clock: Clock,
        step: int,
        offset: int,
        shown: int | None,
        want: int,
        between: Callable[[], object] | None = None,
    ) -> Grant:
        """As the real store; `between` runs once between reading the row and writing it."""
        while True:
            if self.down:
                raise Unavailable("the memory_store is down")
            old = self.rows.get((app, offset))
            wall = max(wall_at(clock(), spec.zone), shown if shown is not None else -(2**62))
            new, grant = reserve(old, spec, wall=wall, step=step, offset=offset, want=want)
            if between is not None:
                between()
                between = None
            if self.rows.get((app, offset)) == old:
                self.rows[(app, offset)] = new
                self.grants.append((app, offset, grant))
                return grant

    def give_back(self, app: str, offset: int, grant_cycle: object, tail: range, shown: int) -> bool:
        row = self.rows.get((app, offset))
        new = give_back(row, grant_cycle, tail, shown) if row is not None and not self.down else None  # type: ignore[arg-type]
        if new is None:
            return False
        self.rows[(app, offset)] = new
        return True


class ManualReserver:
    """The reserver of one process: orders wait until `work`, or one of its halves, is called."""

    def __init__(self, memory_store: MemoryStore, clock: Clock, *, step: int = 1, offset: int = 0) -> None:
        self.memory_store = memory_store
        self.clock = clock
        self.step = step
        self.offset = offset
        self.orders: deque[tuple[Counter, Future[None]]] = deque()
        self.granted: deque[tuple[Counter, Future[None], Grant]] = deque()
        self.refused: list[tuple[Counter, IdError]] = []

    def order(self, counter: Counter) -> Future[None]:
        future: Future[None] = Future()
        self.orders.append((counter, future))
        return future

    def reserve_next(self, between: Callable[[], object] | None = None) -> None:
        """Commit the reservation of the oldest order; it is not delivered yet."""
        counter, future = self.orders.popleft()
        try:
            grant = self.memory_store.reserve(
                counter.rule.spec,
                counter.app,
                clock=self.clock,
                step=self.step,
                offset=self.offset,
                shown=counter.shown,
                want=counter.want,
                between=between,
            )
        except IdError as error:
            self.refused.append((counter, error))
            counter.refuse(error, 0)
            future.set_exception(error)
        else:
            self.granted.append((counter, future, grant))

    def deliver_next(self) -> None:
        counter, future, grant = self.granted.popleft()
        if not counter.deliver(grant):
            self.memory_store.give_back(counter.app, self.offset, grant.cycle, grant.numbers, grant.shown)
        future.set_result(None)

    def work(self) -> None:
        """Do all waiting orders."""
        while self.orders or self.granted:
            if self.granted:
                self.deliver_next()
            else:
                self.reserve_next()

    def retire(self, counter: Counter) -> None:
        """Close a counter and return what it did not use."""
        for cycle, tail in counter.close():
            shown = counter.shown if counter.shown is not None else cycle.start
            if not self.memory_store.give_back(counter.app, self.offset, cycle, tail, shown):
                break

    def counter(
        self, spec: RuleSpec, app: str = "", *, max_segment: int = 100_000, shown: int | None = None
    ) -> Counter:
        return Counter(compile_rule(spec), app, self, self.clock, max_segment=max_segment, shown=shown)

    def ids(self, counter: Counter, count: int, salt: str = "") -> list[str]:
        """`count` IDs, with the reserver's work done in between, as the service does it."""
        ids: list[str] = []
        while True:
            ids += counter.attempt_many(count - len(ids), salt)
            if len(ids) == count:
                return ids
            future = counter.refill(1e9)
            self.work()
            future.result(0)
