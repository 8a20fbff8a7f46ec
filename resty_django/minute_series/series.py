"""Writing and reading of count series under one prefix in a shared dictionary.

Each process counts in memory and flushes about once per second. Counts that cannot be flushed are kept for the next
attempt; a process that is killed loses its last second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import sub
from typing import Any, Final, TypeAlias

from resty_django.sansio import Step, Steps
from resty_django.shdict import Keep, SharedDict, Update

from . import records
from .records import Counts

FLUSH_SECONDS: Final = 1.0
"""Seconds between flushes."""

Adder: TypeAlias = Callable[[object, Counts, float], object]
"""Returns the new record for the old one, new counts and epoch seconds; must have no other effect."""


class FlushPause:
    """The pause until the next flush: `FLUSH_SECONDS`, doubled after each failure up to `longest` seconds."""

    __slots__ = ("_longest", "seconds")

    def __init__(self, longest: float = 60.0) -> None:
        self._longest = longest
        self.seconds = FLUSH_SECONDS

    def after(self, flushed: bool) -> float:
        """Return the pause after a flush that was successful or not."""
        self.seconds = FLUSH_SECONDS if flushed else min(self._longest, 2 * self.seconds)
        return self.seconds


class MinuteSeries:
    """Series by name. Callers must ensure that only one thread at a time flushes.

    `dictionary`: returns the shared dictionary that stores the records; may raise its errors. `clock`: epoch seconds.
    `life`: seconds without new counts after which a record is dropped (0: never). `names_key`: the key of the list of
    all names (empty: names are not listed), which has at most `most_names`; series beyond that are counted under
    `others`, or if that is empty, under their own names without being listed. Steps raise `SharedDictError`.
    """

    def __init__(
        self,
        prefix: str,
        dictionary: Callable[[], SharedDict],
        clock: Callable[[], float] = time.time,
        *,
        life: float = 0.0,
        names_key: str = "",
        most_names: int = 500,
        others: str = "",
    ) -> None:
        self._prefix = f"{prefix}2:"  # with the version of the format, so records of another version are never read
        self._dictionary = dictionary
        self._clock = clock
        self._life = life
        self._names_key = names_key
        self._most_names = most_names
        self._others = others
        self.reset()

    def reset(self) -> None:
        """Reset all counts to zero, as in a new process."""
        self._flushed: dict[str, Counts] = {}
        self._listed: dict[str, tuple[float, str]] = {}

    def key(self, name: str) -> str:
        """Return the key of a series' record."""
        return self._prefix + name

    # --- writing ---

    def unflushed(self, name: str, sums: Counts) -> Counts:
        """Return the part of the sums since the start of this process that is not flushed; empty if there is none."""
        flushed = self._flushed.get(name)
        counts = sums if flushed is None else tuple(map(sub, sums, flushed))
        return counts if any(count > 0 for count in counts) else ()

    def flush(self, name: str, sums: Counts, added: Adder = records.added) -> Steps[None]:
        """Add the unflushed part of the sums since the start of this process. After an error it remains unflushed."""
        counts = self.unflushed(name, sums)
        if not counts:
            return
        is_first = yield from self.add(name, counts, added)
        self._flushed[name] = sums
        if is_first:  # the list may have been lost together with the record
            self._listed.pop(name, None)
            yield from self.listed_as(name)

    def add(self, name: str, counts: Counts, added: Adder = records.added) -> Steps[bool]:
        """Add counts to a series at the current time. Return whether they are its first."""
        dictionary, now = self._dictionary(), self._clock()
        key = self.key((yield from self.listed_as(name)))

        def change(stored: object) -> Update:
            return Update(added(stored, counts, now), self._life, stored is None)

        return bool((yield Step(dictionary.update, dictionary.aupdate, (key, change))))

    def listed_as(self, name: str) -> Steps[str]:
        """Ensure that a name is listed, and return the name under which it is counted.

        Each process checks a name again after 10 minutes, in case the list was lost.
        """
        if not self._names_key:
            return name
        now = self._clock()
        checked, listed = self._listed.get(name, (0.0, ""))
        if not listed or abs(now - checked) >= 600:
            dictionary = self._dictionary()
            change = (self._names_key, lambda names: self._with_name(names, name))
            listed = str((yield Step(dictionary.update, dictionary.aupdate, change)))
            self._listed[name] = now, listed
        return listed

    def _with_name(self, stored: object, name: str) -> Update | Keep:
        names = stored if isinstance(stored, list) else []
        if name not in names and len(names) >= self._most_names:
            if not self._others:
                return Keep(name)
            name = self._others
        return Keep(name) if name in names else Update([*names, name], 0, name)

    # --- reading the sums of all processes ---

    def names(self) -> list[str]:
        """Return the listed names. Raise `SharedDictError`."""
        names = self._dictionary().get(self._names_key)
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def load(self, name: str) -> Steps[Any]:
        """Return the record of a series, for `records.total`, `minutes` and `hours`."""
        dictionary = self._dictionary()
        return (yield Step(dictionary.get, dictionary.aget, (self.key(name),)))
