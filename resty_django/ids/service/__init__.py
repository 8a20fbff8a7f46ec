"""The ID service of a process, and the functions that return IDs.

Each process has one `IdService` (`service()`). A forked child starts without one, because the numbers that its parent
has reserved belong to the parent.
"""

from __future__ import annotations

import atexit
import threading
from os import getpid

from asgiref.sync import sync_to_async

from resty_django.conf import conf
from resty_django.processes.forks import after_fork

from ..engine.counter import Retired
from ..store import CounterPosition
from .id_service import IdService

_service: IdService | None = None
_service_lock = threading.Lock()


def service() -> IdService:
    """Return the service of this process."""
    global _service
    running = _service
    if running is not None and running.pid != getpid() and running is _service:
        _after_fork()  # forked without Python's hooks, as by uWSGI
        running = None
    if running is None:
        with _service_lock:
            running = _service
            if running is None:
                running = _service = IdService()
    return running


def stop(timeout: float = 5.0) -> None:
    """Stop the service of this process and return its unused numbers; the next request starts a new one."""
    global _service
    with _service_lock:
        old, _service = _service, None
    if old is not None and old.pid == getpid():
        old.stop(timeout)


def _after_fork() -> None:
    global _service, _service_lock
    _service = None
    _service_lock = threading.Lock()


after_fork(_after_fork)
atexit.register(stop)


def next_id(rule: str, app: str = "", salt: str = "") -> str:
    """Return the next ID of a rule for an application name.

    `salt` is passed to rules that show one. A gapless rule needs an open transaction; if it is rolled back, its number
    is, too. Raise these classes of `resty_django.ids.errors`: UnknownRule, BadName, BadSalt, Exhausted, Unavailable,
    TooManyNames, TooFast, StepChanged, NeedsTransaction, RuleFailed, BadRule.

        next_id("order", app="shop")    # "O261121000042"
    """
    ids = _service
    if ids is None or ids.pid != getpid():
        ids = service()
    counter = ids._counters.get((rule, app))
    if counter is not None and ids._log is None:
        try:
            issued_id = counter.attempt(salt)
            if issued_id is not None:
                return issued_id
        except Retired:
            ids.forget(counter)
    return ids.next(rule, app, salt)


def next_ids(rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
    """Return the next `count` IDs of a rule, never fewer; `count` is at most IDS["MAX_COUNT"].

    Raise BadCount, and the errors of `next_id`.

        next_ids("order", 2, app="shop")    # ["O261121000043", "O261121000044"]
    """
    return service().next_many(rule, count, app, salt)


async def anext_id(rule: str, app: str = "", salt: str = "") -> str:
    """Return the next ID like `next_id`, without blocking the event loop."""
    (issued_id,) = await service().anext_many(rule, 1, app, salt)
    return issued_id


async def anext_ids(rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
    """Return the next `count` IDs like `next_ids`, without blocking the event loop."""
    return await service().anext_many(rule, count, app, salt)


def monitor(rule: str, app: str = "") -> CounterPosition:
    """Return the position of a counter. Raise UnknownRule, NotExist or Unavailable."""
    return service().monitor(rule, app)


async def amonitor(rule: str, app: str = "") -> CounterPosition:
    """Return the position of a counter like `monitor`, without blocking the event loop."""
    return await sync_to_async(service().monitor, thread_sensitive=conf.ids.eager)(rule, app)
