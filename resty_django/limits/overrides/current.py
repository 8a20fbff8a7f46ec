"""The overrides of this process: an immutable set in memory, read together with the policies.

A decision reads one attribute, `current.active`: None if there are no overrides, so that a site without them pays
nothing else. With overrides, requests to which none applies take little longer (`OverrideSet.applies`).

With the setting OVERRIDES "policies", only processes that use policies read the database; with "all", every process
that uses a limit.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import time_ns
from typing import Final

from resty_django.conf import conf
from resty_django.processes.forks import after_fork
from resty_django.text import logger

from ..specs.override import EVERYWHERE
from . import readers
from .override_set import Override, OverrideRow, OverrideSet, override_of

log = logger("resty_django.limits")

COLUMNS: Final = ("pk", "kind", "key", "limit", "rate", "starts_at", "ends_at")
ROW_ERRORS: Final = (ValueError, TypeError, AttributeError, OverflowError)
"""Errors of rows that somebody has edited by SQL."""


class _Unread(OverrideSet):
    """Overrides that were not read yet: any may apply."""

    __slots__ = ()

    def applies(self, series: str, key: str, roles: Sequence[str]) -> bool:
        return True


UNREAD: Final = _Unread((), False)
"""Stands for overrides that were not read yet."""


class Current:
    """The overrides in force. `active`: None: there are none; `UNREAD`: use `get` or `aget`."""

    __slots__ = ("_faulty", "_last", "_lock", "_rows", "active")

    def __init__(self) -> None:
        self.active: OverrideSet | None = UNREAD
        self._last: OverrideSet | None = None
        self._lock = threading.Lock()
        self._faulty: frozenset[int] = frozenset()
        self._rows: Sequence[OverrideRow] | None = None

    def find(self, series: str, key: str, roles: Sequence[str]) -> Override | None:
        """Return the override in force for a key of a limit, or None. See `OverrideSet.find`."""
        active = self.get()
        return None if active is None else active.find(series, key, roles, now())

    def get(self) -> OverrideSet | None:
        """Return the overrides, or None. The first call in a process reads the database, if the setting wants that."""
        active = self.active
        if active is not UNREAD:
            return active
        if conf.limits.overrides == EVERYWHERE:
            read, _ = readers
            read()  # the database on first use; starts the checks for changes in a forked child
        with self._lock:
            if self.active is UNREAD:
                self.active = self._last
            return self.active

    async def aget(self) -> OverrideSet | None:
        """Run `get` without blocking the event loop."""
        if self.active is UNREAD and conf.limits.overrides == EVERYWHERE:
            _, aread = readers
            await aread()
        return self.get()

    def take(self, rows: Sequence[OverrideRow]) -> None:
        """Replace all overrides by these rows of the database. Rows that are not valid are left out, and logged."""
        if rows == self._rows:
            with self._lock:
                self.active = self._last
            return
        policies_only = conf.limits.overrides != EVERYWHERE
        faulty: frozenset[int] = frozenset()
        try:
            overrides = OverrideSet(map(override_of, rows), policies_only)
        except ROW_ERRORS:
            valid = [row for row in rows if self._is_valid(row)]
            faulty = frozenset(row[0] for row in rows) - {row[0] for row in valid}
            overrides = OverrideSet(map(override_of, valid), policies_only)
        with self._lock:
            self._faulty, self._rows = faulty, rows
            self.active = self._last = overrides if overrides.size else None

    def _is_valid(self, row: OverrideRow) -> bool:
        """Return whether a row is valid. Log an invalid row once."""
        try:
            OverrideSet([override_of(row)], False)
        except ROW_ERRORS as error:
            if row[0] not in self._faulty:
                log.error("The override with the ID %s is not valid and does not apply: %s", row[0], error)
            return False
        return True

    def forget(self) -> None:
        """Discard the overrides, so that the next use reads them again."""
        with self._lock:
            self.active, self._last, self._faulty, self._rows = UNREAD, None, frozenset(), None

    def after_fork(self) -> None:
        """Make the next use start the background thread of this process; until it has read, the set stays."""
        self._lock = threading.Lock()
        self.active = UNREAD


def now() -> float:
    """Return epoch seconds."""
    return time_ns() / 1e9


current: Final = Current()
after_fork(current.after_fork)
