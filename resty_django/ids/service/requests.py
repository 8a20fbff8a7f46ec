"""The requests that wait for the reservation thread, and what it does next."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, NamedTuple

from resty_django.conf import conf

from ..engine.counter import Counter, unavailable
from ..errors import Unavailable
from ..store import CounterPosition

MAX_LOOKUPS: Final = 1000
"""The maximum number of counters whose positions can be requested at the same time."""
LOOKUP_BATCH: Final = 200
"""The maximum number of counters whose positions are read with one query."""
NEW_BATCH: Final = 25
"""The maximum number of counters that one transaction creates; reservations of other counters wait for it."""


class Order(NamedTuple):
    """A reservation for a counter. After `deadline` (monotonic seconds), nobody waits for it."""

    counter: Counter
    future: Future[None]
    deadline: float


class WorkItem(NamedTuple):
    """A unit of work, with the reservations that it makes."""

    work: Callable[[], Any]
    future: Future[Any]
    orders: Sequence[Order] = ()


class Lookup(NamedTuple):
    future: Future[CounterPosition | None]
    deadline: float


class RulesRequest(NamedTuple):
    """A request to read the rules, and when it arrived (monotonic seconds)."""

    future: Future[Any]
    since: float


class Requests:
    """The requests by kind. Access under `changed`, which is notified of new ones."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tasks: deque[WorkItem] = deque()
        self.orders: deque[Order] = deque()  # of counters that this process has used
        self.names: deque[Order] = deque()  # of counters that may be in the database
        self.found: deque[Order] = deque()  # of counters that are in the database
        self.admitted: deque[Order] = deque()  # of counters to create
        self.lookups: dict[tuple[int, str], Lookup] = {}
        self.reading: RulesRequest | None = None

    def __len__(self) -> int:
        orders = map(len, (self.orders, self.names, self.found, self.admitted))
        return len(self.tasks) + sum(orders) + len(self.lookups) + (self.reading is not None)

    def add(self, item: WorkItem) -> None:
        """Add a work item that comes before all other requests."""
        with self.changed:
            self.tasks.append(item)
            self.changed.notify()

    def order(self, counter: Counter) -> Future[None]:
        """Reserve a segment for `counter`, which has at most one order at a time."""
        order = Order(counter, Future(), time.monotonic() + conf.ids.wait)
        with self.changed:
            (self.orders if counter.known else self.names).append(order)
            self.changed.notify()
        return order.future

    def lookup(self, rule_id: int, app: str) -> Future[CounterPosition | None]:
        """Read the position of a counter, after all reservations. Raise Unavailable if too many requests wait."""
        key = rule_id, app
        with self.changed:
            lookup = self.lookups.get(key)
            if lookup is None:
                if len(self.lookups) >= MAX_LOOKUPS:
                    raise Unavailable("Too many requests for counter positions are waiting. Try again shortly.")
                lookup = self.lookups[key] = Lookup(Future(), time.monotonic() + conf.ids.wait)
                self.changed.notify()
            return lookup.future

    def refresh(self) -> Future[Any]:
        """Read the rules soon. Return a future with the rules, or the error, of a read that began after this call."""
        with self.changed:
            if self.reading is None:
                self.reading = RulesRequest(Future(), time.monotonic())
                self.changed.notify()
            return self.reading.future

    def next_lookups(self) -> Mapping[tuple[int, str], Lookup]:
        """Remove and return the lookups that came first, as many as one query reads; those that came late fail."""
        with self.changed:
            keys = list(self.lookups)[:LOOKUP_BATCH]
            lookups = {key: self.lookups.pop(key) for key in keys}
        now = time.monotonic()
        late = [key for key, lookup in lookups.items() if now > lookup.deadline]
        for key in late:
            lookups.pop(key).future.set_exception(unavailable())
        return lookups

    def refuse_all(self) -> None:
        """Remove all requests; they fail."""
        with self.changed:
            queues = (self.tasks, self.orders, self.names, self.found, self.admitted)
            futures: list[Future[Any]] = [item.future for queue in queues for item in queue]
            futures += [lookup.future for lookup in self.lookups.values()]
            if self.reading is not None:
                futures.append(self.reading.future)
            for queue in queues:
                queue.clear()
            self.lookups.clear()
            self.reading = None
        for future in futures:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(unavailable())
