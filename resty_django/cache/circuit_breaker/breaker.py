"""The circuit breaker of a store: an LMDB dictionary, or all dictionaries on one Redis.

While a store is down, calls of caches do not try it. A thread of the process does, once a second, so that no call waits
for a hanging store a second time. When the store answers, the thread first carries out what could not be written
(`remember`), and then closes the circuit. So no call reads a value that this process has deleted meanwhile.

Reads and writes are distinguished: a store that refuses writes, such as a full Redis or a replica, is still read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from resty_django import circuit_breaker
from resty_django.circuit_breaker import Outage, breakers_of
from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.events.errors import NoRoom
from resty_django.events.errors import Unavailable as EventsUnavailable
from resty_django.processes.forks import after_fork
from resty_django.shdict import NoMemory, SharedDict, Unavailable
from resty_django.text import logger

log = logger("resty_django.cache")

THREAD_TIMEOUT_SECONDS: Final = 10.0
"""Time after which a call tries the store itself, because the thread has not: some servers run no threads."""
MAX_PENDING_WRITES: Final = 10_000
"""Maximum number of writes that are remembered for a store."""
BYPASSED: Final = "is bypassed until it can be used again"
WRITE_FAULTS: Final = (Unavailable, NoMemory, EventsUnavailable, NoRoom)
"""Errors of a write that is to be tried again."""


class StoreBreaker(circuit_breaker.CircuitBreaker):
    """The state of one store in this process.

    `down`: whether writes are bypassed; `reads_down`: whether reads are, too; `full`: deletions are not, because it
    only lacks space. `calls`: calls answered without it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.dictionaries: WeakSet[SharedDict] = WeakSet()
        self.forget()

    def forget(self) -> None:
        """Forget the outage: in a forked child, in which the thread does not exist, and when settings change."""
        self.down = self.reads_down = self.full = False
        self.pending: dict[Hashable, Callable[[], object]] = {}
        """Writes to be carried out when the store answers."""
        self._changing = threading.RLock()
        self._thread: threading.Thread | None = None

    def log_failure(self, error: Exception) -> None:
        log.error("The store %s of caches cannot be used; caches follow their on_error: %s", self.name, error)

    def log_recovery(self, seconds: float) -> None:
        log.warning(
            "The store %s of caches can be used again after %.1f s and %d calls without it",
            self.name,
            seconds,
            self.calls,
        )

    def is_open(self, *, reading: bool = False) -> bool:
        """Return whether to bypass the store now: as long as the thread tries it."""
        if self.pending or time.monotonic() < self.retry_at:
            return True
        self.retry_at = time.monotonic() + THREAD_TIMEOUT_SECONDS
        return False

    def bypassed(self, *, reading: bool = False) -> Unavailable | NoMemory:
        """Return the error of a call that does not try the store. A read does not lack space."""
        kind = NoMemory if self.full and not reading else Unavailable
        return kind(f"The store {self.name} {BYPASSED}: {self._error}")

    @contextmanager
    def trying(self, is_down: bool, faults: tuple[type[Exception], ...], reading: bool) -> Iterator[None]:
        """Wrap a call. `is_down`: whether calls of its kind are bypassed: raise at once, or find out whether the store
        answers again. `faults`: errors that open the circuit, for a read (`reading`) also for reads."""
        if is_down and self.is_open():
            raise self.bypassed(reading=reading)
        try:
            yield
        except faults as error:
            self.fail(error, reading)
            raise
        if is_down:
            self.recover()

    def fail(self, error: Exception, reading: bool) -> None:
        """Open the circuit after a failed call: for writes, and after a read also for reads."""
        with self._changing:
            self.reads_down = self.reads_down or reading
            self.full = isinstance(error, NoMemory)
            if not self.down or BYPASSED not in str(error):  # else errors would contain each other
                self.record_failure(error)
            self.retry_at = time.monotonic() + THREAD_TIMEOUT_SECONDS
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="resty-cache-outage", daemon=True)
                with suppress(RuntimeError):  # the interpreter ends
                    self._thread.start()

    def recover(self) -> None:
        """Close the circuit after a successful call, unless writes wait."""
        with self._changing:
            if not self.pending:
                self.reads_down = self.full = False
                self.reset()

    def remember(self, error: Exception, key: Hashable, write: Callable[[], object], hold: bool = True) -> None:
        """Have `write` called when the store answers again; `error`: why it cannot be now.

        `key`: identifies the write; a later one with the same key replaces it. `hold`: do not read the store before.
        Raise `Unavailable` if there are too many.
        """
        with self._changing:
            if key not in self.pending and len(self.pending) >= MAX_PENDING_WRITES:
                raise Unavailable(
                    f"{MAX_PENDING_WRITES:,} writes wait for the store {self.name} already, so this one cannot: {error}"
                ) from error
            self.pending[key] = write
            self.fail(error, reading=hold)

    def _watch(self) -> None:
        pause = threading.Event()
        while self._continues():
            pause.wait(circuit_breaker.BYPASS_SECONDS)
            self.retry_at = time.monotonic() + THREAD_TIMEOUT_SECONDS
            try:
                self._try()
            except Exception as error:
                with self._changing:
                    if self._thread is threading.current_thread():
                        self.fail(error, reading=False)

    def _continues(self) -> bool:
        """Return whether this thread is to try the store again. If not, the next failure starts another one."""
        with self._changing:
            if self._thread is not threading.current_thread():  # the outage was forgotten meanwhile
                return False
            if self.down and self.dictionaries:
                return True
            self._thread = None
            return False

    def _try(self) -> None:
        dictionary = next(iter(self.dictionaries), None)
        if dictionary is None:
            return
        probe = "mlcache:stats:probe"
        dictionary.get(probe)
        with self._changing:
            self.reads_down = bool(self.pending)
        dictionary.set(probe, 1, 1)
        while True:
            for key, write in self.pending.copy().items():
                self._carry_out(key, write)
            with self._changing:
                if not self.pending:
                    self.recover()
                    return

    def _carry_out(self, key: Hashable, write: Callable[[], object]) -> None:
        try:
            write()
        except WRITE_FAULTS:
            raise
        except Exception:
            log.exception("A write that waited for the store %s failed", self.name)
        with self._changing:
            if self.pending.get(key) is write:
                del self.pending[key]


_of_redis: Final[WeakValueDictionary[str, StoreBreaker]] = WeakValueDictionary()
_of_memory: Final[WeakKeyDictionary[SharedDict, StoreBreaker]] = WeakKeyDictionary()


def breaker_of(dictionary: SharedDict) -> StoreBreaker:
    """Return the breaker of a dictionary's store, one for each in this process."""
    alias = getattr(dictionary, "alias", None)
    if alias is None:
        breaker = _of_memory.get(dictionary) or _of_memory.setdefault(
            dictionary, StoreBreaker(f"{dictionary.engine}:{dictionary.name}")
        )
    else:
        breaker = _of_redis.get(alias) or _of_redis.setdefault(alias, StoreBreaker(f"{dictionary.engine}:{alias}"))
    breaker.dictionaries.add(dictionary)
    return breaker


def current_outages() -> list[Outage]:
    """Return the current outages of the stores of caches in this process, ordered by store.

    for outage in current_outages():
        print(outage.store, outage.since, outage.error, outage.calls)
    """
    return sorted(outage for breaker in breakers_of(StoreBreaker) if (outage := breaker.outage()))


def _forget() -> None:
    for breaker in breakers_of(StoreBreaker):
        breaker.forget()


def _on_change() -> None:
    _forget()
    _of_redis.clear()


after_fork(_forget)
on_change(_on_change, SETTING, "CACHES")

__all__ = ["WRITE_FAULTS", "Outage", "StoreBreaker", "breaker_of", "breakers_of", "current_outages"]
