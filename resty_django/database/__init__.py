"""Time limits for database connections in background threads, and views outside of transactions.

A connection can die silently, for example after the failover of a virtual address, or if a firewall drops its state.
Up to three limits protect against that, depending on the database: the server ends a statement (`statement_timeout`,
`max_statement_time`), the client's socket ends a wait (connect, read and write timeouts, TCP keep-alives), and `abort`,
called by another thread, ends the operation in progress.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpResponseBase

from resty_django.text import logger

P = ParamSpec("P")
R = TypeVar("R")
View = TypeVar("View", bound=Callable[..., HttpResponseBase | Awaitable[HttpResponseBase]])

log = logger("resty_django.database")

MARGIN_SECONDS: Final = 0.5
"""Seconds beyond the limit after which `watched` aborts an operation, and between two of its checks."""


class LimitedConnection:
    """The current thread's connection to `alias`, with a time limit of `seconds` per operation."""

    def __init__(self, alias: str, seconds: float) -> None:
        self.wrapper: BaseDatabaseWrapper = connections[alias]
        self._seconds = seconds
        self._since: float | None = None
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        wrapper: Any = self.wrapper
        wrapper.close()
        wrapper.settings_dict = limited_settings(wrapper.settings_dict, wrapper.vendor, seconds)
        self._open, self._shut = wrapper.connect, wrapper._close
        # The methods that talk to the database without a cursor.
        for name in ("connect", "is_usable", "_close", "_commit", "_rollback", "_savepoint", "_set_autocommit"):
            setattr(wrapper, name, self._timed(getattr(wrapper, name)))
        wrapper.connect, wrapper._close = self._timed(self._connect), self._timed(self._close)
        wrapper.execute_wrappers.append(self._execute)

    def fits(self, alias: str) -> bool:
        """Return whether this is the calling thread's connection to `alias`."""
        return connections[alias] is self.wrapper

    @property
    def waited(self) -> float:
        """Return the duration of the operation in progress in seconds; 0 if none is."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def abort(self) -> None:
        """Make the operation in progress fail with an error in its thread. May be called from any other thread."""
        with self._lock, contextlib.suppress(OSError, DatabaseError):
            if self.wrapper.vendor == "sqlite":
                raw: Any = self.wrapper.connection
                if raw is not None:
                    raw.interrupt()
            elif self._handle is not None:
                self._handle.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Abort each operation in the block that takes `MARGIN_SECONDS` longer than the limit, in another thread."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(MARGIN_SECONDS):
                if self.waited >= self._seconds + MARGIN_SECONDS:
                    self.abort()

        threading.Thread(target=watch, name="resty-database-watchdog", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _connect(self) -> None:
        self._open()
        raw: Any = self.wrapper.connection
        # Duplicate the handle: by the time of an abort, the driver's file descriptor may belong to something else.
        with self._lock, contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
            if self.wrapper.vendor != "sqlite":
                self._handle = socket.socket(fileno=os.dup(raw.fileno()))
        for statement in statements(self.wrapper, self._seconds):
            try:
                with self.wrapper.cursor() as cursor:
                    cursor.execute(statement)
            except DatabaseError as error:
                log.debug("The database rejected %s: %s", statement, error)

    def _close(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None
        self._shut()

    def _timed(self, method: Callable[P, R]) -> Callable[P, R]:
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            before, self._since = self._since, time.monotonic()
            try:
                return method(*args, **kwargs)
            finally:
                self._since = None if before is None else time.monotonic()

        return timed

    def _execute(self, execute: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return self._timed(execute)(*args, **kwargs)


def limited_settings(settings: Mapping[str, Any], vendor: str, seconds: float) -> dict[str, Any]:
    """Return a copy of a database's settings with which the driver gives up after about `seconds`.

    Shorter limits set by the site are kept. Pooling is switched off, because the limits apply to one thread only.
    """
    options = dict(settings["OPTIONS"])
    rounded = max(1, math.ceil(seconds))
    if vendor == "postgresql":
        options.pop("pool", None)
        options["connect_timeout"] = min(int(options.get("connect_timeout") or rounded), rounded)
        options.setdefault("tcp_user_timeout", int(seconds * 1000))
        options.setdefault("keepalives_idle", rounded)
        options.setdefault("keepalives_interval", 1)
        options.setdefault("keepalives_count", 2)
    elif vendor == "mysql" and settings["ENGINE"] != "mysql.connector.django":
        for option in ("connect_timeout", "read_timeout", "write_timeout"):
            options[option] = min(int(options.get(option) or rounded), rounded)
    elif vendor == "sqlite":
        options["timeout"] = min(float(options.get("timeout", 5.0)), seconds)
    return {**settings, "OPTIONS": options}


def statements(wrapper: Any, seconds: float) -> list[str]:
    """Return the SQL statements that make the server enforce the time limit on this connection."""
    milliseconds = int(seconds * 1000)
    rounded = max(1, math.ceil(seconds))
    if wrapper.vendor == "postgresql":
        if wrapper.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
            return []  # a pooler would pass the server connection, with this setting, to other clients
        return [
            f"SELECT set_config('statement_timeout', '{milliseconds}', false) FROM pg_settings "  # noqa: S608
            f"WHERE name = 'statement_timeout' AND (setting = '0' OR setting::bigint > {milliseconds})"
        ]
    if wrapper.vendor == "mysql":
        limit = (
            f"max_statement_time = IF(@@max_statement_time = 0, {seconds}, LEAST(@@max_statement_time, {seconds}))"
            if wrapper.mysql_is_mariadb
            else f"max_execution_time = {milliseconds}"
        )
        locks = f"innodb_lock_wait_timeout = {rounded}, lock_wait_timeout = {rounded}"
        return [f"SET SESSION {limit}", f"SET SESSION {locks}"]
    return []


def limit_connection(alias: str, seconds: float) -> None:
    """Limit each operation on the calling thread's connection to `alias` to about `seconds`.

    For background threads, which would otherwise hang if the database dies silently.
    """
    wrapper = connections[alias]
    limited = limited_settings(wrapper.settings_dict, wrapper.vendor, seconds)
    if limited != wrapper.settings_dict:
        wrapper.close()
        wrapper.settings_dict = limited


def outside_transactions(view: View) -> View:
    """Return the view outside the request's transaction (`ATOMIC_REQUESTS`) in each database."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view
