"""The reservation thread: one background thread per process that reserves numbers and reads changed rules.

It uses its own database connection, so that a reservation is committed even if the caller's transaction is rolled back.
After a failure it does not use the database for a growing pause; counters whose reservation failed retry automatically.

Requests have priorities and limits. Reservations for counters that this process has used come first. A counter has at
most one, and the number of counters is limited. Names that this process has not used yet come next. One query finds out
which of many are in the database; the others are new: they are refused if they arrive faster than the site allows, and
otherwise created together, in one transaction. A name whose requesters have given up is dropped, so a flood of names
costs neither rows nor the time of others. Requests to read the rules are merged into one. Requests for the positions of
counters come last; many of them share one query, and requests beyond the limit are refused.

A second thread, the watchdog, measures how long the database takes. It aborts an operation that takes too long. If that
fails, it abandons the thread and starts another one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Protocol, TypeVar

from django.db import Error as DatabaseError
from django.db import connections

from resty_django.conf import conf
from resty_django.database import LimitedConnection
from resty_django.text import logger

from ..engine.counter import Clock, Counter, unavailable
from ..engine.segment import Grant
from ..errors import Exhausted, IdError, TooFast, Unavailable
from ..store import CounterStore, database, positions
from .reasons import LOCKED, reason_of
from .requests import LOOKUP_BATCH, NEW_BATCH, Order, Requests, WorkItem

log = logger("resty_django.ids")

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 2.0
"""The pause after a database failure: the first time, and at most. It doubles with each failure."""
REFUSED_SECONDS = 1.0
"""Time for which no new reservation is tried for an exhausted counter or a refused name."""
WATCHDOG_SECONDS: Final = 0.5
"""Time beyond DATABASE_TIMEOUT after which the watchdog aborts an operation, and between two of its checks."""

T = TypeVar("T")


class Counters(Protocol):
    """The service as the thread sees it: its clock, and the receiver of results."""

    clock: Clock
    refresh_seconds: float

    @property
    def loaded(self) -> bool: ...
    def refresh(self) -> Any: ...
    def reserved(self, counter: Counter) -> None: ...
    def forget(self, counter: Counter) -> None: ...


class ReservationThread:
    """The thread. Call `start` once; `stop` ends the thread."""

    def __init__(self, service: Counters, store: CounterStore) -> None:
        self._service = service
        self._store = store
        self.requests = Requests()
        self._item: WorkItem | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.connection: LimitedConnection | None = None
        self._timeout = conf.ids.database_timeout
        self._pause = 0.0
        self._closed_until = 0.0
        self._refresh_at = 0.0
        self.reserve_seconds = 0.0
        self.count = 0
        self.failures = 0
        self.last_error = ""
        self.reason = ""
        """The reason why the database cannot be used and what to do about it, if known."""

    def start(self) -> None:
        self._stopping.clear()
        self._refresh_at = time.monotonic() + self._service.refresh_seconds
        self._begin()
        threading.Thread(target=self._watch, name="resty-ids-watchdog", daemon=True).start()

    def stop(self, timeout: float) -> None:
        """End the thread after the current work item, within `timeout` seconds. Refuse waiting requests."""
        with self.requests.changed:
            self._stopping.set()
            self.requests.changed.notify()
        thread = self._thread
        if thread is not None and not self.current:
            thread.join(timeout)
        self.requests.refuse_all()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def current(self) -> bool:
        """Whether the caller is running on this thread."""
        return self._thread is threading.current_thread()

    @property
    def _left_behind(self) -> bool:
        """Whether the caller is a thread that the watchdog has replaced."""
        return self._thread is not None and not self.current

    @property
    def locked_out(self) -> bool:
        """Whether the thread is waiting for SQLite's write lock, or has just stopped waiting for it."""
        connection = self.connection
        if connection is None or connection.wrapper.vendor != "sqlite":
            return False
        return self.reason == LOCKED or connection.waited > 0

    # --- requests ----------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the thread, with its connection, before all waiting requests. Return a future of its result."""
        future: Future[T] = Future()
        self.requests.add(WorkItem(lambda: self._connected(work), future))
        return future

    # --- the thread --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.connection = None
        self._thread = threading.Thread(target=self._run, name="resty-ids-reservations", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self.current and (item := self._next()) is not None:
            try:
                result = item.work()
            except Exception as error:
                self._end(item, error=error)
            else:
                self._end(item, result=result)
        self.drop_connection()

    def _next(self) -> WorkItem | None:
        """Wait for the next work item and return it, or None when the thread must end."""
        with self.requests.changed:
            while True:
                item = self._choose(time.monotonic())
                if item is not None or self._stopping.is_set():
                    self._item = item
                    return item
                self.requests.changed.wait(max(0.0, max(self._refresh_at, self._closed_until) - time.monotonic()))

    def _choose(self, now: float) -> WorkItem | None:
        requests = self.requests
        if requests.tasks:
            return requests.tasks.popleft()
        if self._stopping.is_set():
            return None
        # Reservations delay the reading of changed rules by 0.2 seconds at most.
        if requests.reading is not None and (not requests.orders or now - requests.reading.since > 0.2):
            future, requests.reading = requests.reading.future, None
            return WorkItem(self._read_rules, future)
        if now >= self._refresh_at and now >= self._closed_until:
            return WorkItem(self._read_rules, Future())
        if requests.orders:
            return self._reservation(requests.orders.popleft())
        waiting = [orders for orders in (requests.names, requests.found, requests.admitted) if orders]
        oldest = min(waiting, key=lambda orders: orders[0].deadline, default=None)
        if oldest is requests.names:
            return self._batch(self._look_up, [oldest.popleft() for _ in range(min(LOOKUP_BATCH, len(oldest)))])
        if oldest is requests.found:
            return self._batch(self._reserve_found, [oldest.popleft()])
        if oldest is requests.admitted:
            rule = oldest[0].counter.rule
            batch: list[Order] = []
            while oldest and len(batch) < NEW_BATCH and oldest[0].counter.rule is rule:
                batch.append(oldest.popleft())
            return self._batch(self._create, batch)
        if requests.lookups:
            return WorkItem(self.read_positions, Future())
        return None

    def _reservation(self, order: Order) -> WorkItem:
        return WorkItem(lambda: self._reserve(order.counter), order.future, [order])

    @staticmethod
    def _batch(work: Callable[[list[Order]], None], orders: list[Order]) -> WorkItem:
        return WorkItem(lambda: work(orders), Future(), orders)

    def _end(self, item: WorkItem, *, result: Any = None, error: Exception | None = None) -> None:
        with self.requests.changed:
            if self._item is item:
                self._item = None
        with contextlib.suppress(InvalidStateError):  # the watchdog has ended it
            if error is None:
                item.future.set_result(result)
            else:
                item.future.set_exception(error)

    # --- the work ----------------------------------------------------------------------------------------------------

    def _reserve(self, counter: Counter) -> None:
        """Reserve a segment for `counter` and deliver it. On an error, refuse the order and raise the error."""
        if counter.closed:
            return
        started = time.monotonic()
        try:
            self._check_pause()
            issued = counter.issued
            grant = self._connected(
                lambda: self._store.reserve(
                    counter.rule_id,
                    counter.rule.spec,
                    counter.app,
                    shown=counter.shown,
                    want=counter.want,
                    issued=issued - counter.reported,
                )
            )
            counter.reported = issued
        except Exception as failure:
            error = self._error_of(failure)
            self._refuse(counter, error)
            raise error  # noqa: B904 (it has its cause)
        if not self._left_behind:  # otherwise the watchdog has refused the counter; the numbers are a gap
            self.reserve_seconds += time.monotonic() - started
            self._deliver(counter, grant)

    def _look_up(self, orders: list[Order]) -> None:
        """Sort names that this process has not used by whether they are in the database; refuse those too many."""
        orders = self._expected(orders)
        try:
            self._check_pause()
            stored = self._connected(lambda: positions({(o.counter.rule_id, o.counter.app) for o in orders}))
        except Exception as failure:
            self._end_orders(orders, self._error_of(failure))
            return
        if self._left_behind:
            return
        for order in orders:
            if (order.counter.rule_id, order.counter.app) in stored:
                self.requests.found.append(order)
                continue
            try:
                self._store.admit()
            except TooFast as error:
                self._end_orders([order], error)
            else:
                self.requests.admitted.append(order)

    def _reserve_found(self, orders: list[Order]) -> None:
        for order in self._expected(orders):
            try:
                self._reserve(order.counter)
            except IdError as error:
                self._end_orders([order], error, refuse=False)
            else:
                self._end_orders([order])

    def _create(self, orders: list[Order]) -> None:
        """Create the counters of new names of one rule, in one transaction."""
        orders = self._expected(orders)
        if not orders:
            return
        started = time.monotonic()
        try:
            self._check_pause()
            results = self._connected(lambda: self._store.create_many([order.counter for order in orders]))
        except Exception as failure:
            self._end_orders(orders, self._error_of(failure))
            return
        if self._left_behind:
            return
        self.reserve_seconds += time.monotonic() - started
        for order, result in zip(orders, results, strict=True):
            if result is None:
                self.requests.found.append(order)
            elif isinstance(result, IdError):
                self._end_orders([order], result)
            else:
                self._deliver(order.counter, result)
                self._end_orders([order])

    def _expected(self, orders: list[Order]) -> list[Order]:
        """Return the orders that somebody waits for; end the others."""
        now = time.monotonic()
        self._end_orders([order for order in orders if order.counter.closed])
        self._end_orders([order for order in orders if order.deadline < now], unavailable())
        return [order for order in orders if not order.future.done()]

    def _end_orders(self, orders: list[Order], error: IdError | None = None, *, refuse: bool = True) -> None:
        for order in orders:
            if error is not None and refuse:
                self._refuse(order.counter, error)
            with contextlib.suppress(InvalidStateError):
                order.future.set_result(None) if error is None else order.future.set_exception(error)

    def _deliver(self, counter: Counter, grant: Grant) -> None:
        self._pause, self.reason = 0.0, ""
        self.count += 1
        if counter.deliver(grant):
            self._service.reserved(counter)
            return
        with contextlib.suppress(DatabaseError):  # then the numbers are a gap
            self._store.give_back(counter.rule_id, counter.app, grant.cycle, grant.numbers, grant.shown)

    def _check_pause(self) -> None:
        if time.monotonic() < self._closed_until:
            raise Unavailable(
                "The database failed a moment ago and is not used until the pause ends. Try again shortly."
            )

    def _error_of(self, failure: Exception) -> IdError:
        """Return the error for requesters. Begin a pause unless the failure is a refusal."""
        if isinstance(failure, IdError):
            return failure
        self._failed(failure)
        error = Unavailable(self.reason or "The database did not answer. Try again shortly.")
        error.__cause__ = failure
        return error

    def _refuse(self, counter: Counter, error: IdError) -> None:
        pause = REFUSED_SECONDS
        if isinstance(error, Unavailable):
            pause = max(self._closed_until - time.monotonic(), 0.01)
        elif isinstance(error, Exhausted) and error.until is not None:
            pause = min(REFUSED_SECONDS, max(error.until - self._service.clock(), 0.01))
        counter.refuse(error, pause)
        if isinstance(error, Exhausted):
            self._service.reserved(counter)
        elif not counter.known:
            self._service.forget(counter)

    def read_positions(self) -> None:
        """Read the positions that were requested first, up to the limit of one query; expired requests fail."""
        lookups = self.requests.next_lookups()
        if not lookups:
            return
        try:
            if time.monotonic() < self._closed_until:
                raise unavailable()
            stored = self._connected(lambda: positions(lookups))
        except Exception as error:
            if isinstance(error, DatabaseError):
                self._failed(error)
            for lookup in lookups.values():
                lookup.future.set_exception(error)
        else:
            for key, lookup in lookups.items():
                lookup.future.set_result(stored.get(key))

    def _read_rules(self) -> Any:
        """Read and return the rules. Raise the error if that fails; schedule the next read in any case."""
        first = not self._service.loaded
        try:
            rule_set = self._connected(self._service.refresh)
        except DatabaseError as failure:
            self._failed(failure)
            self._refresh_at = self._closed_until
            raise
        except Exception:
            log.exception("Reading the ID rules failed.")
            self._refresh_at = time.monotonic() + self._service.refresh_seconds
            raise
        if first:
            self._pause, self._closed_until, self.reason = 0.0, 0.0, ""  # this read was the one that had failed
        self._refresh_at = time.monotonic() + self._service.refresh_seconds
        return rule_set

    # --- the connection ----------------------------------------------------------------------------------------------

    def _connected(self, work: Callable[[], T]) -> T:
        """Run `work`; if the connection turns out to be dead, open a new one and run it again."""
        alias = database()
        if self.current and (self.connection is None or not self.connection.fits(alias)):
            self.connection = LimitedConnection(alias, self._timeout)
        began = time.monotonic()
        try:
            return work()
        except DatabaseError as error:
            connection = connections[database()]
            if self._left_behind or connection.connection is None or connection.is_usable():
                raise
            seconds = time.monotonic() - began
            if seconds >= self._timeout:
                self.failures += 1
                self.last_error = f"{type(error).__name__}: {error}"
                log.error("The database did not answer for %.1f s; opening a new connection: %s", seconds, error)
            self.drop_connection()
            return work()

    def _failed(self, failure: Exception) -> None:
        if self._left_behind:
            return
        self.failures += 1
        self.last_error = f"{type(failure).__name__}: {failure}"
        self.reason = reason_of(failure, connections[database()].vendor)
        self._pause = min(max(self._pause * 2, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        self._closed_until = time.monotonic() + self._pause
        if isinstance(failure, DatabaseError):
            explanation = f"{self.last_error}. {self.reason}" if self.reason else self.last_error
            log.warning("ID reservation failed, next attempt in %.1f s: %s", self._pause, explanation)
        else:
            log.exception("ID reservation failed, next attempt in %.1f s", self._pause)
        self.drop_connection()

    @staticmethod
    def drop_connection() -> None:
        """Close this thread's connection; Django opens a new one on the next use."""
        try:
            connections[database()].close()
        except DatabaseError:
            log.debug("Closing a broken connection failed.", exc_info=True)

    # --- the watchdog ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        aborted: tuple[LimitedConnection, float] | None = None
        while self.running:
            if self._stopping.wait(WATCHDOG_SECONDS):
                time.sleep(WATCHDOG_SECONDS / 5)
            connection = self.connection
            waited = connection.waited if connection is not None else 0.0
            limit = min(self._timeout, 1.0) if self._stopping.is_set() else self._timeout + WATCHDOG_SECONDS
            if connection is None or waited < limit:
                aborted = None
            elif aborted is None or aborted[0] is not connection or waited < aborted[1]:
                aborted = connection, waited
                log.error("The database has not answered for %.1f s; dropping the connection", waited)
                connection.abort()
            elif waited > aborted[1] + limit:
                aborted = None
                self._leave_behind(waited)

    def _leave_behind(self, waited: float) -> None:
        """Continue with a new thread: the old one hangs in the database driver."""
        if self._stopping.is_set():
            return
        log.error("The database driver has been hanging for %.1f s; starting a new reservation thread", waited)
        self.failures += 1
        self.last_error = f"the database driver has been hanging for {waited:.1f} s"
        with self.requests.changed:
            item, self._item = self._item, None
            self._begin()
        if item is not None:
            error = unavailable()
            self._end_orders(list(item.orders), error)
            with contextlib.suppress(InvalidStateError):
                item.future.set_exception(error)
