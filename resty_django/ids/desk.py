"""The desk: one background thread a process that makes reservations and looks for changed rules.

It has a database connection of its own, so that a reservation is committed whatever becomes of the caller's
transaction. After a failure it leaves the database alone for a growing pause; counters whose next segment failed
ask again by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error as DatabaseError
from django.db import connections

from .engine.counter import Counter
from .errors import Exhausted, IdError, Unavailable
from .store import Store, database

if TYPE_CHECKING:
    from .service import IdService

log = logging.getLogger("resty_django.ids")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds without a try after the database failed: the first time, and at most (the pause doubles in between)."""
REFUSED_FOR = 1.0
"""Seconds for which an exhausted counter, or a name that was refused, is not asked for again."""

T = TypeVar("T")
Job = tuple[Callable[[], Any], "Future[Any]"]


class Desk:
    """The thread and its queue. Start it once with `start`; `stop` ends it when the queue is done."""

    def __init__(self, service: IdService, store: Store) -> None:
        self._service = service
        self._store = store
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pause = 0.0
        self._closed_until = 0.0
        self._refresh_at = 0.0
        self.reserve_seconds = 0.0
        self.reservations = 0
        self.failures = 0
        self.last_error = ""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="resty-ids-desk", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread after the work that is queued now; at most `timeout` seconds."""
        self._queue.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` on the thread, with its database connection; the future gets its result."""
        future: Future[Any] = Future()
        self._queue.put((lambda: self._connected(work), future))
        return future

    def order(self, counter: Counter) -> Future[None]:
        future: Future[None] = Future()
        self._queue.put((lambda: self._reserve(counter), future))
        return future

    def _reserve(self, counter: Counter) -> None:
        """One reservation: delivered, or refused with the error that is also raised."""
        if counter.closed:
            return
        started = time.monotonic()
        error: IdError
        try:
            if started < self._closed_until:
                raise Unavailable("the database is not asked again for a moment after it failed; try again shortly")
            grant = self._connected(
                lambda: self._store.reserve(
                    counter.rule_id, counter.rule.spec, counter.app, shown=counter.shown, want=counter.want
                )
            )
        except IdError as refused:
            error = refused
        except Exception as failure:
            self._failed(failure)
            error = Unavailable("the database did not answer; try again shortly")
            error.__cause__ = failure
        else:
            self._pause = 0.0
            self.reservations += 1
            self.reserve_seconds += time.monotonic() - started
            if not counter.deliver(grant):
                with contextlib.suppress(DatabaseError):  # then the numbers are a gap
                    self._store.give_back(counter.rule_id, counter.app, grant.cycle, grant.numbers, grant.shown)
            return
        pause = REFUSED_FOR
        if isinstance(error, Unavailable):
            pause = max(self._closed_until - time.monotonic(), 0.01)
        elif isinstance(error, Exhausted) and error.until is not None:
            pause = min(REFUSED_FOR, max(error.until - self._service.clock(), 0.01))
        counter.refuse(error, pause)
        if not counter.known and not isinstance(error, Exhausted):
            self._service.forget(counter)
        raise error

    def _connected(self, work: Callable[[], T]) -> T:
        """Do `work`; a second time, on a new connection, where the old one turns out to be dead."""
        try:
            return work()
        except DatabaseError:
            connection = connections[database()]
            if connection.connection is None or connection.is_usable():
                raise
            self.drop_connection()
            return work()

    def _failed(self, failure: Exception) -> None:
        self.failures += 1
        self.last_error = f"{type(failure).__name__}: {failure}"
        self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
        self._closed_until = time.monotonic() + self._pause
        if isinstance(failure, DatabaseError):
            log.warning("ID reservation failed, next try in %.1f s: %s", self._pause, self.last_error)
        else:
            log.exception("ID reservation failed, next try in %.1f s", self._pause)
        self.drop_connection()

    @staticmethod
    def drop_connection() -> None:
        """Close this thread's connection; Django opens a new one when it is next used."""
        try:
            connections[database()].close()
        except DatabaseError:
            log.debug("closing a broken connection failed", exc_info=True)

    def refresh(self) -> Future[None]:
        """Look for changed rules now; the future ends after that, or after a failure, which is made good later."""
        return self.submit(self._refresh)

    def _run(self) -> None:
        self._refresh_at = time.monotonic() + self._service.refresh_seconds
        while True:
            try:
                job = self._queue.get(timeout=max(0.0, self._refresh_at - time.monotonic()))
            except queue.Empty:
                self._refresh()
                continue
            if job is None:
                self.drop_connection()
                return
            work, future = job
            try:
                result = work()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            if time.monotonic() >= self._refresh_at:
                self._refresh()

    def _refresh(self) -> None:
        self._refresh_at = max(time.monotonic(), self._closed_until)
        if time.monotonic() < self._closed_until:
            return
        try:
            self._connected(self._service.refresh)
        except DatabaseError as failure:
            self._failed(failure)
            self._refresh_at = self._closed_until
        except Exception:
            log.exception("reading the ID rules failed")
            self._refresh_at = time.monotonic() + self._service.refresh_seconds
        else:
            self._refresh_at = time.monotonic() + self._service.refresh_seconds
