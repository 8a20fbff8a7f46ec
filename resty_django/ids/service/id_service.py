"""The rules and counters of a process, and the IDs that it issues from them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from concurrent.futures import Future
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError
from django.db import connections

from resty_django.conf import conf
from resty_django.text import logger
from resty_django.text.suggestions import did_you_mean

from .. import store
from ..engine.counter import Clock, Counter, Retired, unavailable
from ..engine.cycle import ENDLESS
from ..engine.rule import Compiled, check_name
from ..errors import BadCount, IdError, NeedsTransaction, NotExist, TooManyNames, Unavailable, UnknownRule
from ..store import CounterPosition
from . import gapless, issue_log
from .reservations import ReservationThread
from .rule_cache import LoadedRule, RuleSet, load_rules
from .stats import IssuedIdsReporter

log = logger("resty_django.ids")

MAX_PENDING_NAMES = 10_000
"""The maximum number of new names that wait for their first reservation at the same time."""

T = TypeVar("T")


class IdService:
    """The rules and counters of this process. `clock` returns epoch seconds; tests pass one that jumps."""

    def __init__(self, clock: Clock = time.time) -> None:
        self.clock = clock
        self.pid = os.getpid()
        self.refresh_seconds = conf.ids.refresh
        self._wait = conf.ids.wait
        self._counters: dict[tuple[str, str], Counter] = {}
        self._shown: dict[tuple[str, str], int] = {}
        self._new: set[Counter] = set()
        self.rule_set: RuleSet | None = None
        self._tried_at = -1.0
        self._lock = threading.RLock()
        self._stopped = False
        self.store = store.CounterStore(clock)
        self.reservations = ReservationThread(self, self.store)
        self.issued_before: dict[str, int] = {}
        self.stats_reporter = IssuedIdsReporter(self.issued)
        self._log = issue_log.open_log(conf.ids.issue_log)

    # --- IDs -------------------------------------------------------------------------------------------

    def next(self, rule: str, app: str = "", salt: str = "") -> str:
        """Return the next ID; if no number is left, wait up to IDS["WAIT"] seconds for a reservation."""
        return self.next_many(rule, 1, app, salt)[0]

    def next_many(self, rule: str, count: int, app: str = "", salt: str = "", *, for_row: bool = False) -> list[str]:
        """Return the next `count` IDs, never fewer; raise an error instead.

        `for_row`: the caller stores them in its transaction, so a rollback may undo both. SQLite has one writer, so
        during that transaction the reservation thread cannot reserve numbers.
        """
        try:
            return self._next_many(rule, count, app, salt, for_row)
        except Unavailable as error:
            raise self.explained(error, own_transaction=True) from error.__cause__
        except UnknownRule as error:
            raise UnknownRule(error.message, self._rule_hint(rule)) from None

    def _next_many(self, rule: str, count: int, app: str, salt: str, for_row: bool) -> list[str]:
        self._check_count(count)
        in_transaction = self._in_transaction(rule)
        if in_transaction or (for_row and _is_sqlite_transaction()):
            issued = [] if in_transaction else self._reserved(rule, count, app, salt)
            missing = count - len(issued)
            return issued + self._take(rule, missing, app, salt) if missing else issued
        ids: list[str] = []
        deadline = time.monotonic() + self._wait
        while True:
            future = self.step(ids, count, rule, app, salt)
            if future is None:
                return self.logged(rule, app, ids)
            _result(future, deadline)

    async def anext_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """Return the next `count` IDs like `next_many`, without blocking the event loop."""
        try:
            return await self._anext_many(rule, count, app, salt)
        except Unavailable as error:
            raise self.explained(error) from error.__cause__
        except UnknownRule as error:
            raise UnknownRule(error.message, self._rule_hint(rule)) from None

    async def _anext_many(self, rule: str, count: int, app: str, salt: str) -> list[str]:
        self._check_count(count)
        if self.rule_set is None or rule not in self.rule_set.rules:
            await sync_to_async(self.rule, thread_sensitive=conf.ids.eager)(rule)
        if self._in_transaction(rule):
            return await sync_to_async(self._take)(rule, count, app, salt)
        ids: list[str] = []
        deadline = time.monotonic() + self._wait
        while True:
            future = self.step(ids, count, rule, app, salt, reload=False)
            if future is None:
                return self.logged(rule, app, ids)
            try:
                await asyncio.wait_for(asyncio.wrap_future(_shielded(future)), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise unavailable() from None

    def step(
        self, ids: list[str], count: int, rule: str, app: str, salt: str, *, reload: bool = True
    ) -> Future[None] | None:
        """Append IDs to `ids` until it has `count`. Return None when done, else the reservation to wait for.

        Never blocks, except that `reload` may read the rules again if the rule is unknown.
        """
        while True:
            counter = self.counter(rule, app, reload=reload)
            try:
                ids += counter.attempt_many(count - len(ids), salt)
                return None if len(ids) == count else counter.refill(self._wait, count - len(ids))
            except Retired:
                self.forget(counter)

    def counter(self, rule: str, app: str, *, reload: bool = True) -> Counter:
        """Return the counter of a rule and name in this process; create it if it does not exist."""
        while True:
            counter = self._counters.get((rule, app))
            if counter is not None:
                return counter
            loaded = self.rule(rule, reload=reload)
            compiled = loaded.ready()
            if compiled.spec.gapless:
                raise NeedsTransaction(
                    f"Rule {rule} is gapless. Ask for its numbers from Python, inside transaction.atomic()."
                )
            check_name(app)
            with self._lock:
                if self._stopped:
                    raise unavailable()
                if self.rule(rule, reload=False).compiled is compiled:  # otherwise the rule has just changed
                    return self._counters.get((rule, app)) or self._add(loaded.row.pk, compiled, app)

    def _add(self, rule_id: int, compiled: Compiled, app: str) -> Counter:
        if len(self._new) >= MAX_PENDING_NAMES:
            raise TooManyNames("Too many new application names wait for their first reservation. Try again shortly.")
        key = (compiled.spec.name, app)
        counter = self._counters[key] = Counter(
            compiled,
            app,
            self.reservations.requests,
            self.clock,
            max_segment=conf.ids.max_segment,
            shown=self._shown.get(key),
            rule_id=rule_id,
        )
        self._new.add(counter)
        return counter

    def monitor(self, rule: str, app: str = "") -> CounterPosition:
        """Return the last number that this process has issued, else the last one that any process has reserved.

        Raise NotExist if the counter does not exist. Never creates one.
        """
        try:
            return self._monitor(rule, app)
        except Unavailable as error:
            raise self.explained(error) from error.__cause__

    def _monitor(self, rule: str, app: str) -> CounterPosition:
        counter = self._counters.get((rule, app))
        if counter is not None and counter.position is not None:
            return CounterPosition(counter.position, conf.ids.offset)
        loaded = self.rule(rule)
        deadline = time.monotonic() + self._wait
        try:
            position = (
                store.position(loaded.row.pk, app)
                if conf.ids.eager
                else _result(self.reservations.requests.lookup(loaded.row.pk, app), deadline)
            )
        except DatabaseError as error:
            raise unavailable() from error
        if position is None:
            raise NotExist("not exist")
        return position

    def explained(self, error: Unavailable, *, own_transaction: bool = False) -> Unavailable:
        """Return the error with its cause and what to do about it, if known.

        `own_transaction`: whether the caller's thread may be the one that blocks the database.
        """
        if own_transaction and self.reservations.locked_out and connections[store.database()].in_atomic_block:
            return Unavailable(
                "This thread's own transaction holds SQLite's write lock, so no number can be reserved. Request the "
                "ID before the transaction writes.",
                explained=True,
            )
        return Unavailable(self.reservations.reason, explained=True) if self.reservations.reason else error

    @property
    def counters(self) -> dict[tuple[str, str], Counter]:
        """The counters in memory by rule and application name. Do not modify."""
        return self._counters

    @property
    def logs(self) -> bool:
        """Whether the site has an issue log."""
        return self._log is not None

    def logged(self, rule: str, app: str, ids: list[str]) -> list[str]:
        """Write IDs to the issue log, if the site has one, and return them."""
        if self._log is not None:
            self._log.write(rule, app, ids)
        return ids

    def _in_transaction(self, rule: str) -> bool:
        return conf.ids.eager or self.rule(rule).ready().spec.gapless

    def _reserved(self, rule: str, count: int, app: str, salt: str) -> list[str]:
        """Return up to `count` IDs with numbers that this process has reserved already."""
        counter = self._counters.get((rule, app))
        try:
            return self.logged(rule, app, counter.attempt_many(count, salt)) if counter is not None else []
        except Retired:
            return []

    def _take(self, rule: str, count: int, app: str, salt: str) -> list[str]:
        if conf.ids.eager:
            self.refresh()
        return gapless.take(self.rule(rule), count, app, salt, clock=self.clock, done=self._taken)

    def _taken(self, rule: str, app: str, ids: list[str]) -> None:
        with self._lock:
            self.issued_before[rule] = self.issued_before.get(rule, 0) + len(ids)
        self.logged(rule, app, ids)

    # --- rules -------------------------------------------------------------------------------------------------

    def rule(self, name: str, *, reload: bool = True) -> LoadedRule:
        """Return the rule with that name. Raise UnknownRule if it does not exist.

        With `reload`, read the database if the rules have not been read or do not contain the rule.
        """
        rule_set = self.rule_set
        if rule_set is None:
            if not reload:
                raise unavailable()
            rule_set = self.load()
        loaded = rule_set.rules.get(name)
        if loaded is None and reload and time.monotonic() - self._tried_at > 0.2:  # seconds between two reads
            loaded = self.load().rules.get(name)
        if loaded is None:
            raise UnknownRule(f"There is no rule {name!r:.80}.")
        return loaded

    def _rule_hint(self, name: str) -> str:
        """Return what to do about a name that no rule has: the nearest name, or where to add the rule."""
        names = sorted(self.rule_set.rules) if self.rule_set is not None else []
        return did_you_mean(name, names, 'Add it in the admin, or to RESTY_DJANGO["IDS"]["RULES"].')

    @property
    def loaded(self) -> bool:
        """Whether the rules have been read."""
        return self.rule_set is not None

    def load(self) -> RuleSet:
        """Read the rules now, and wait for the result."""
        if conf.ids.eager:
            return self.refresh()
        self._start()
        self._tried_at = time.monotonic()
        try:
            rule_set: RuleSet = _result(self.reservations.requests.refresh(), time.monotonic() + self._wait)
            return rule_set
        except DatabaseError as error:
            if self.rule_set is not None:
                return self.rule_set
            raise unavailable() from error

    def refresh(self) -> RuleSet:
        """Read changed rules: a new set replaces the old one, and counters of changed rules are recreated.

        Runs on the reservation thread. Unused numbers of a changed rule are returned if none were reserved after them.
        """
        old = self.rule_set
        rule_set = load_rules(old)
        if rule_set is old:
            return rule_set
        rules = rule_set.rules
        with self._lock:
            self.rule_set = rule_set
            stale = [
                counter
                for (name, _), counter in self._counters.items()
                if name not in rules or rules[name].compiled is not counter.rule
            ]
        self._retire(stale)
        return rule_set

    def refresh_now(self) -> None:
        """Check for changed rules now instead of at the next interval, if the service is running."""
        looking = self.refresh_soon()
        if looking is not None and not self.reservations.current:
            concurrent.futures.wait([looking], self._wait)

    def refresh_soon(self) -> Future[Any] | None:
        """Let the reservation thread read changed rules, if the service is running."""
        if self.rule_set is None or conf.ids.eager or not self.reservations.running:
            return None
        return self.reservations.requests.refresh()

    # --- start and stop -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._stopped:
                raise unavailable()
            if not self.reservations.running:
                self.reservations.start()
                self.stats_reporter.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop issuing IDs, return the unused numbers and end the thread within `timeout` seconds."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            counters = list(self._counters.values())
        if self.reservations.running:
            until = time.monotonic() + timeout
            self.reservations.submit(lambda: self._retire(counters))
            self.reservations.stop(max(0.0, until - time.monotonic()))
            self.stats_reporter.stop(1.0)
        if self._log is not None:
            self._log.close()

    def reserved(self, counter: Counter) -> None:
        """Note that a counter has a row in the database, so that it is not among the new names that wait for one."""
        self._new.discard(counter)

    def forget(self, counter: Counter) -> None:
        """Remove a counter, so that the next request creates a new one."""
        key = (counter.rule.spec.name, counter.app)
        with self._lock:
            self._new.discard(counter)
            if self._counters.get(key) is counter:
                del self._counters[key]
                name = counter.rule.spec.name
                self.issued_before[name] = self.issued_before.get(name, 0) + counter.issued
                if counter.shown is not None:
                    self._shown[key] = counter.shown

    def _retire(self, counters: list[Counter]) -> None:
        for counter in counters:
            tails = counter.close()
            self.forget(counter)
            if counter.issued > counter.reported and not tails:
                tails = [(ENDLESS, range(0))]  # only reports
            for cycle, tail in tails:
                latest = counter.shown if counter.shown is not None else cycle.start
                issued = counter.issued - counter.reported
                counter.reported += issued
                try:
                    if not self.store.give_back(counter.rule_id, counter.app, cycle, tail, latest, issued):
                        break
                except DatabaseError:
                    self.reservations.drop_connection()
                    break

    # --- monitoring ---------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return figures of this process: IDs issued and numbers left by rule, and the state of reservations.

        `issued`: numbers issued since the start; `remaining`: reserved numbers left; `reserve_ms`: mean time of a
        reservation.
        """
        rules = {name: {"issued": issued, "remaining": 0, "names": 0} for name, issued in self.issued().items()}
        for (name, _), counter in self._counters.copy().items():
            entry = rules.setdefault(name, {"issued": 0, "remaining": 0, "names": 0})
            entry["remaining"] += counter.remaining
            entry["names"] += 1
        reservations = self.reservations
        return {
            "rules": rules,
            "reservations": reservations.count,
            "reservation_failures": reservations.failures,
            "reserve_ms": round(1000 * reservations.reserve_seconds / max(1, reservations.count), 3),
            "last_error": reservations.last_error,
            "rules_age": round(time.monotonic() - self.rule_set.loaded_at, 3) if self.rule_set else None,
        }

    def issued(self) -> dict[str, int]:
        """Return the number of IDs issued by this process since its start, by rule."""
        with self._lock:
            counters = list(self._counters.items())
            counts = dict(self.issued_before)
        for (name, _), counter in counters:
            counts[name] = counts.get(name, 0) + counter.issued
        return counts

    @staticmethod
    def _check_count(count: int) -> None:
        bound = conf.ids.max_count
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= bound:
            raise BadCount(f"The count is {count!r:.20}. Use a whole number from 1 to {bound} (MAX_COUNT).")


def _is_sqlite_transaction() -> bool:
    connection = connections[store.database()]
    return connection.vendor == "sqlite" and connection.in_atomic_block


def _result(future: Future[T], deadline: float) -> T:
    try:
        return future.result(max(0.0, deadline - time.monotonic()))
    except concurrent.futures.TimeoutError:
        raise unavailable() from None
    except IdError as error:
        raise error.with_traceback(None) from None


def _shielded(future: Future[T]) -> Future[T]:
    """Return a future with the result of `future` that can be cancelled alone: others wait for the same reservation."""
    outer: Future[T] = Future()

    def hand_on(done: Future[T]) -> None:
        if outer.set_running_or_notify_cancel():
            error = done.exception()
            if error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(done.result())

    future.add_done_callback(hand_on)
    return outer
