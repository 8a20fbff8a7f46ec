"""The ID service of a process: the table of rules, the counters in memory, and the ways to ask for an ID.

One `IdService` lives in each process (`service()`); a forked child starts with none, since the numbers its parent
reserved are its parent's.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
import time
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, TypeVar, overload

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError

from resty_django.conf import conf

from . import gapless, issue_log, store
from .desk import Desk
from .engine.counter import Clock, Counter, Retired, unavailable
from .engine.rule import Compiled, check_name
from .errors import BadCount, IdError, NeedsTransaction, NotExist, TooManyNames, UnknownRule
from .stats import Handing
from .table import LoadedRule, Table, table_of_rules

log = logging.getLogger("resty_django.ids")

MAX_PENDING_NAMES = 10_000
"""New names that may wait for their first reservation at one time."""
_RELOAD_PAUSE = 0.2
FAREWELL = 1.0
"""Seconds that the end of a service waits for its last figures."""

T = TypeVar("T")


class MonitorReply(NamedTuple):
    """Where a counter stands: the last number given out by this process, or else reserved by anybody."""

    counter: int
    node_offset: int


class IdService:
    """See the module. `clock` gives epoch seconds; tests give one that jumps."""

    def __init__(self, clock: Clock = time.time) -> None:
        self.clock = clock
        self.refresh_seconds = conf.ids.refresh
        self._wait = conf.ids.wait
        self._counters: dict[tuple[str, str], Counter] = {}
        self._shown: dict[tuple[str, str], int] = {}
        self._table: Table | None = None
        self._tried_at = -1.0
        self._lock = threading.RLock()
        self._stopped = False
        self._store = store.Store(clock)
        self.desk = Desk(self, self._store)
        self._issued_before: dict[str, int] = {}
        self._handing = Handing(self.issued)
        self._log = issue_log.open_log(conf.ids.issue_log)

    # --- asking for IDs -------------------------------------------------------------------------------------------

    def next(self, rule: str, app: str = "", salt: str = "") -> str:
        """One ID; waits up to IDS["WAIT"] seconds for a reservation where none is at hand."""
        return self.next_many(rule, 1, app, salt)[0]

    def next_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """`count` IDs, all or an error."""
        self._check_count(count)
        if self._in_transaction(rule):
            return self._take(rule, count, app, salt)
        made: list[str] = []
        deadline = time.monotonic() + self._wait
        while True:
            future = self.step(made, count, rule, app, salt)
            if future is None:
                return self.logged(rule, app, made)
            _result(future, deadline)

    async def anext_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """As `next_many`, without blocking the event loop."""
        self._check_count(count)
        if self._table is None or rule not in self._table.rules:
            await sync_to_async(self.rule, thread_sensitive=conf.ids.eager)(rule)
        if self._in_transaction(rule):
            return await sync_to_async(self._take)(rule, count, app, salt)
        made: list[str] = []
        deadline = time.monotonic() + self._wait
        while True:
            future = self.step(made, count, rule, app, salt, reload=False)
            if future is None:
                return self.logged(rule, app, made)
            try:
                await asyncio.wait_for(asyncio.wrap_future(_shielded(future)), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise unavailable() from None

    def step(
        self, made: list[str], count: int, rule: str, app: str, salt: str, *, reload: bool = True
    ) -> Future[None] | None:
        """Add IDs to `made` until it has `count`: None when done, else the reservation to wait for. Never blocks,
        except that `reload` may look for the rule once more where it is unknown."""
        while True:
            counter = self.counter(rule, app, reload=reload)
            try:
                made += counter.attempt_many(count - len(made), salt)
                return None if len(made) == count else counter.refill(self._wait)
            except Retired:
                self.forget(counter)

    def counter(self, rule: str, app: str, *, reload: bool = True) -> Counter:
        """The counter of a rule and name in this process, made when it is not there yet."""
        while True:
            counter = self._counters.get((rule, app))
            if counter is not None:
                return counter
            loaded = self.rule(rule, reload=reload)
            compiled = loaded.ready()
            if compiled.spec.gapless:
                raise NeedsTransaction(
                    f"rule {rule} is gapless: ask for its numbers from Python, inside transaction.atomic()"
                )
            check_name(app)
            with self._lock:
                if self._stopped:
                    raise unavailable()
                if self.rule(rule, reload=False).compiled is compiled:  # or else the rule has just changed
                    return self._counters.get((rule, app)) or self._add(loaded.row.pk, compiled, app)

    def _add(self, rule_id: int, compiled: Compiled, app: str) -> Counter:
        if len(self._counters) >= MAX_PENDING_NAMES <= sum(not c.known for c in self._counters.values()):
            raise TooManyNames("too many new application names wait for their first reservation")
        key = (compiled.spec.name, app)
        counter = self._counters[key] = Counter(
            compiled,
            app,
            self.desk,
            self.clock,
            max_segment=conf.ids.max_segment,
            shown=self._shown.get(key),
            rule_id=rule_id,
        )
        return counter

    def monitor(self, rule: str, app: str = "") -> MonitorReply:
        """Where a counter stands; NotExist when it does not exist. Never makes one."""
        counter = self._counters.get((rule, app))
        if counter is not None and counter.position is not None:
            return MonitorReply(counter.position, conf.ids.offset)
        loaded = self.rule(rule)
        deadline = time.monotonic() + self._wait
        try:
            found = (
                store.position(loaded.row.pk, app)
                if conf.ids.eager
                else _result(self.desk.submit(lambda: store.position(loaded.row.pk, app)), deadline)
            )
        except DatabaseError as error:
            raise unavailable() from error
        if found is None:
            raise NotExist("not exist")
        return MonitorReply(found.counter, found.node_offset)

    @property
    def counters(self) -> dict[tuple[str, str], Counter]:
        """The counters in memory by rule and application name; to be read only."""
        return self._counters

    @property
    def logs(self) -> bool:
        """Whether the site keeps an issue log."""
        return self._log is not None

    def logged(self, rule: str, app: str, made: list[str]) -> list[str]:
        """Note IDs in the issue log, where the site keeps one."""
        if self._log is not None:
            self._log.write(rule, app, made)
        return made

    def _in_transaction(self, rule: str) -> bool:
        return conf.ids.eager or self.rule(rule).ready().spec.gapless

    def _take(self, rule: str, count: int, app: str, salt: str) -> list[str]:
        if conf.ids.eager:
            self.refresh()
        return gapless.take(self.rule(rule), count, app, salt, clock=self.clock, done=self._taken)

    def _taken(self, rule: str, app: str, made: list[str]) -> None:
        with self._lock:
            self._issued_before[rule] = self._issued_before.get(rule, 0) + len(made)
        self.logged(rule, app, made)

    # --- the table of rules ---------------------------------------------------------------------------------------

    def rule(self, name: str, *, reload: bool = True) -> LoadedRule:
        """The rule of that name; `reload` allows to ask the database, where no table or no such rule is at hand."""
        table = self._table
        if table is None:
            if not reload:
                raise unavailable()
            table = self.load()
        found = table.rules.get(name)
        if found is None and reload and time.monotonic() - self._tried_at > _RELOAD_PAUSE:
            found = self.load().rules.get(name)
        if found is None:
            raise UnknownRule(f"no rule {name!r:.80}")
        return found

    def load(self) -> Table:
        """Read the rules now, with the caller waiting."""
        if conf.ids.eager:
            return self.refresh()
        self._start()
        self._tried_at = time.monotonic()
        try:
            table: Table = _result(self.desk.submit(self.refresh), time.monotonic() + self._wait)
            return table
        except DatabaseError as error:
            if self._table is not None:
                return self._table
            raise unavailable() from error

    def refresh(self) -> Table:
        """Look for changed rules: a new table replaces the old one, and counters of changed rules start afresh.

        Runs on the desk's thread. The unused numbers of a changed rule go back where nobody reserved after them.
        """
        old = self._table
        table = table_of_rules(old)
        if table is old:
            return table
        rules = table.rules
        with self._lock:
            self._table = table
            stale = [
                counter
                for (name, _), counter in self._counters.items()
                if name not in rules or rules[name].compiled is not counter.rule
            ]
        self._retire(stale)
        return table

    def refresh_now(self) -> None:
        """Look for changed rules without waiting for the next round, where the service runs already."""
        looking = self.refresh_soon()
        if looking is not None:
            concurrent.futures.wait([looking], self._wait)

    def refresh_soon(self) -> Future[Any] | None:
        """Have the desk look for changed rules, where the service runs already."""
        if self._table is None or conf.ids.eager or not self.desk.running:
            return None
        return self.desk.refresh()

    # --- start and stop -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._stopped:
                raise unavailable()
            if not self.desk.running:
                self.desk.start()
                self._handing.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Give out nothing more, return the unused numbers, end the thread. A later call starts a new service."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            counters = list(self._counters.values())
        if self.desk.running:
            returning = self.desk.submit(lambda: self._retire(counters))
            concurrent.futures.wait([returning], timeout)
            self.desk.stop(timeout)
            self._handing.stop(FAREWELL)
        if self._log is not None:
            self._log.close()

    def forget(self, counter: Counter) -> None:
        """Take a counter out of the table, so that the next request makes a new one."""
        key = (counter.rule.spec.name, counter.app)
        with self._lock:
            if self._counters.get(key) is counter:
                del self._counters[key]
                name = counter.rule.spec.name
                self._issued_before[name] = self._issued_before.get(name, 0) + counter.issued
                if counter.shown is not None:
                    self._shown[key] = counter.shown

    def _retire(self, counters: list[Counter]) -> None:
        for counter in counters:
            tails = counter.close()
            self.forget(counter)
            for cycle, tail in tails:
                shown = counter.shown if counter.shown is not None else cycle.start
                try:
                    if not self._store.give_back(counter.rule_id, counter.app, cycle, tail, shown):
                        break
                except DatabaseError:
                    self.desk.drop_connection()
                    break

    # --- what operators see ---------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Figures of this process: IDs issued and numbers at hand by rule, and how reservations fare.

        `issued`: numbers given out since the start; `remaining`: reserved numbers at hand; `reserve_ms`: mean time
        of a reservation.
        """
        rules = {name: {"issued": issued, "remaining": 0, "names": 0} for name, issued in self.issued().items()}
        for (name, _), counter in list(self._counters.items()):
            entry = rules.setdefault(name, {"issued": 0, "remaining": 0, "names": 0})
            entry["remaining"] += counter.remaining
            entry["names"] += 1
        desk = self.desk
        return {
            "rules": rules,
            "reservations": desk.reservations,
            "reservation_failures": desk.failures,
            "reserve_ms": round(1000 * desk.reserve_seconds / max(1, desk.reservations), 3),
            "last_error": desk.last_error,
            "rules_age": round(time.monotonic() - self._table.loaded_at, 3) if self._table else None,
        }

    def issued(self) -> dict[str, int]:
        """IDs given out by this process since its start, by rule."""
        with self._lock:
            counters = list(self._counters.items())
            found = dict(self._issued_before)
        for (name, _), counter in counters:
            found[name] = found.get(name, 0) + counter.issued
        return found

    @staticmethod
    def _check_count(count: int) -> None:
        bound = conf.ids.max_count
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= bound:
            raise BadCount(f"count is {count!r:.20}; it is a whole number from 1 to {bound} (MAX_COUNT)")


def _result(future: Future[T], deadline: float) -> T:
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except concurrent.futures.TimeoutError:
        raise unavailable() from None
    except IdError as error:
        raise error.with_traceback(None) from None


def _shielded(future: Future[T]) -> Future[T]:
    """A future that ends with `future` but may be cancelled alone: others wait for the same reservation."""
    own: Future[T] = Future()

    def hand_on(done: Future[T]) -> None:
        if own.set_running_or_notify_cancel():
            error = done.exception()
            if error is not None:
                own.set_exception(error)
            else:
                own.set_result(done.result())

    future.add_done_callback(hand_on)
    return own


_service: IdService | None = None
_service_lock = threading.Lock()


def service() -> IdService:
    """The service of this process."""
    global _service
    found = _service
    if found is None:
        with _service_lock:
            found = _service
            if found is None:
                found = _service = IdService()
    return found


def stop(timeout: float = 5.0) -> None:
    """Stop the service of this process and return its unused numbers; the next request starts a new one."""
    global _service
    with _service_lock:
        old, _service = _service, None
    if old is not None:
        old.stop(timeout)


def _after_fork() -> None:
    global _service, _service_lock
    _service = None
    _service_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop)


@overload
def next_id(rule: str, app: str = "", salt: str = "", count: Literal[1] = 1) -> str: ...
@overload
def next_id(rule: str, app: str = "", salt: str = "", *, count: int) -> str | list[str]: ...
def next_id(rule: str, app: str = "", salt: str = "", count: int = 1) -> str | list[str]:
    """The next ID of a rule for an application name; a list of them when `count` is more than 1.

    `salt` is handed to rules that show one. A gapless rule needs an open transaction, and its number is taken back
    when that rolls back. Raises the classes of `resty_django.ids.errors`: UnknownRule, BadName, BadSalt, BadCount,
    Exhausted, Unavailable, TooManyNames, TooFast, StepChanged, NeedsTransaction, RuleFailed, BadRule.

        next_id("order", app="shop")    # "O261121000042"
    """
    this = _service or service()
    counter = this._counters.get((rule, app))
    if counter is not None and count == 1 and this._log is None:
        try:
            made = counter.attempt(salt)
            if made is not None:
                return made
        except Retired:
            this.forget(counter)
    found = this.next_many(rule, count, app, salt)
    return found[0] if count == 1 else found


async def anext_id(rule: str, app: str = "", salt: str = "", count: int = 1) -> str | list[str]:
    """As `next_id`, for asynchronous code: never blocks the event loop."""
    found = await service().anext_many(rule, count, app, salt)
    return found[0] if count == 1 else found


def monitor(rule: str, app: str = "") -> MonitorReply:
    """Where a counter stands. Raises UnknownRule, NotExist, Unavailable."""
    return service().monitor(rule, app)


async def amonitor(rule: str, app: str = "") -> MonitorReply:
    """As `monitor`, for asynchronous code."""
    return await sync_to_async(service().monitor, thread_sensitive=False)(rule, app)
