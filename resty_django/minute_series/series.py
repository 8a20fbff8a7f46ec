"""Series of counts under one prefix in a shared dictionary, as one process writes and reads them.

A process counts in its memory and flushes about once a second. What cannot be flushed is kept for the next time; a
process that is killed loses its last second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import sub
from typing import Any, Final, TypeAlias

from resty_django.sansio import Step, Steps
from resty_django.shdict import Change, Keep, SharedDict

from . import records
from .records import Counts

PERIOD: Final = 1.0
"""Seconds between two flushes."""
LONGEST_PAUSE: Final = 60.0
"""Seconds at most between two attempts, where the dictionary does not answer."""
ANNOUNCE: Final = 600.0
"""Seconds after which a process checks again that a name is listed."""
FORMAT: Final = 2
"""The format of the records, as a part of their keys: records of another format are never read."""

Adder: TypeAlias = Callable[[Any, Counts, float], Any]
"""Returns the new record for the old one, new counts and epoch seconds; must have no other effect."""


class Pause:
    """Seconds until the next flush: `PERIOD`, doubled after each failure up to `longest`."""

    __slots__ = ("_longest", "seconds")

    def __init__(self, longest: float = LONGEST_PAUSE) -> None:
        self._longest = longest
        self.seconds = PERIOD

    def after(self, flushed: bool) -> float:
        """Return the pause after a flush that was successful or not."""
        self.seconds = PERIOD if flushed else min(self._longest, 2 * self.seconds)
        return self.seconds


class MinuteSeries:
    """Series by name. Callers make sure that one thread at a time flushes.

    `dictionary`: returns the shared dictionary of the records, and may raise its errors. `clock`: epoch seconds.
    `life`: seconds without new counts after which a record is dropped (0: never). `names_key`: the key of the list of
    all names (empty: names are not listed), which has at most `most_names`; series beyond that are counted under
    `others`, or, where that is empty, under their own names without being listed. Steps raise `SharedDictError`.
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
        self._prefix = f"{prefix}{FORMAT}:"
        self._dictionary = dictionary
        self._clock = clock
        self._life = life
        self._names_key = names_key
        self._most_names = most_names
        self._others = others
        self.reset()

    def reset(self) -> None:
        """Begin with counts of zero, as in a new process."""
        self._flushed: dict[str, Counts] = {}
        self._listed: dict[str, tuple[float, str]] = {}

    def key(self, name: str) -> str:
        """Return the key of the record of a series."""
        return self._prefix + name

    # --- writing ---

    def news(self, name: str, sums: Counts) -> Counts:
        """Return what of the sums since the start of this process is not flushed; empty if everything is."""
        flushed = self._flushed.get(name)
        news = sums if flushed is None else tuple(map(sub, sums, flushed))
        return news if any(count > 0 for count in news) else ()

    def flush(self, name: str, sums: Counts, added: Adder = records.added) -> Steps[None]:
        """Add what is new in the sums since the start of this process. After an error it is still new."""
        news = self.news(name, sums)
        if not news:
            return
        is_first = yield from self.add(name, news, added)
        self._flushed[name] = sums
        if is_first:  # perhaps the list was lost with the record
            self._listed.pop(name, None)
            yield from self.listed_as(name)

    def add(self, name: str, counts: Counts, added: Adder = records.added) -> Steps[bool]:
        """Add counts to a series, now. Return whether they are its first."""
        dictionary, now = self._dictionary(), self._clock()
        key = self.key((yield from self.listed_as(name)))

        def change(stored: Any) -> Change:
            return Change(added(stored, counts, now), self._life, stored is None)

        return bool((yield Step(dictionary.update, dictionary.aupdate, (key, change))))

    def listed_as(self, name: str) -> Steps[str]:
        """Make sure that a name is listed, and return the name that its counts belong to."""
        if not self._names_key:
            return name
        now = self._clock()
        checked, listed = self._listed.get(name, (0.0, ""))
        if not listed or abs(now - checked) >= ANNOUNCE:
            dictionary = self._dictionary()
            change = (self._names_key, lambda names: self._with_name(names, name))
            listed = str((yield Step(dictionary.update, dictionary.aupdate, change)))
            self._listed[name] = now, listed
        return listed

    def _with_name(self, stored: Any, name: str) -> Change | Keep:
        names = stored if isinstance(stored, list) else []
        if name not in names and len(names) >= self._most_names:
            if not self._others:
                return Keep(name)
            name = self._others
        return Keep(name) if name in names else Change([*names, name], 0, name)

    # --- reading the sums of all processes ---

    def names(self) -> list[str]:
        """Return the listed names. Raises `SharedDictError`."""
        names = self._dictionary().get(self._names_key)
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def load(self, name: str) -> Steps[Any]:
        """Return the record of a series, for `records.total`, `minutes` and `hours`."""
        dictionary = self._dictionary()
        return (yield Step(dictionary.get, dictionary.aget, (self.key(name),)))
