"""The latest invalidations by tag, of all processes, for the admin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from resty_django.sansio import Step, Steps
from resty_django.shdict import SharedDict, Update

MAX_LISTED_TAGS: Final = 50
"""Number of tags that are listed: those whose last invalidation is the latest."""
LISTED_SECONDS: Final = 2 * 86400.0
"""Time after its last invalidation for which a tag is listed."""


class Invalidation(NamedTuple):
    """A tag, the number of its invalidations while it was listed, and the last of them in epoch seconds."""

    tag: str
    times: int
    when: float


class TagHistory:
    """Counts invalidations in this process, and flushes them with the counts of the cache.

    `dictionary`: stores the sums of all processes. `clock`: epoch seconds.
    """

    def __init__(self, cache: str, dictionary: SharedDict, clock: Callable[[], float]) -> None:
        self._key = f"mlcache:stats-tags:{cache}"
        self._dictionary = dictionary
        self._clock = clock
        self.after_fork()

    def after_fork(self) -> None:
        """Count from zero in a forked child."""
        self.flushed = False
        """Whether this process has flushed an invalidation."""
        self._pending: dict[str, Invalidation] = {}
        self._writing = threading.Lock()

    def add(self, tags: Iterable[str]) -> None:
        """Count one invalidation of each tag."""
        now = self._clock()
        with self._writing:
            rows = summed(self._pending.values(), (Invalidation(tag, 1, now) for tag in tags))
            self._pending = {row.tag: row for row in rows}

    def flush(self) -> Steps[None]:
        """Flush the counts; after an error they remain unflushed. Raise `SharedDictError`."""
        if not self._pending:
            return
        with self._writing:
            rows, self._pending = self._pending, {}

        def change(stored: object) -> Update:
            return Update([list(row) for row in summed(_rows(stored), rows.values())], LISTED_SECONDS)

        try:
            yield Step(self._dictionary.update, self._dictionary.aupdate, (self._key, change))
            self.flushed = True
        except BaseException:
            with self._writing:
                self._pending = {row.tag: row for row in summed(self._pending.values(), rows.values())}
            raise

    def load(self) -> Steps[list[Invalidation]]:
        """Return the tags of all processes, the latest first. Raise `SharedDictError`."""
        stored = yield Step(self._dictionary.get, self._dictionary.aget, (self._key,))
        now = self._clock()
        return [row for row in _rows(stored) if row.when > now - LISTED_SECONDS]


def summed(stored: Iterable[Invalidation], news: Iterable[Invalidation]) -> list[Invalidation]:
    """Return the rows of both, added up by tag."""
    rows = {row.tag: row for row in stored}
    for row in news:
        old = rows.get(row.tag)
        rows[row.tag] = row if old is None else Invalidation(row.tag, old.times + row.times, max(old.when, row.when))
    return latest(rows.values())


def latest(rows: Iterable[Invalidation]) -> list[Invalidation]:
    """Return the rows with the latest invalidations, at most `MAX_LISTED_TAGS`."""
    return sorted(rows, key=lambda row: row.when, reverse=True)[:MAX_LISTED_TAGS]


def _rows(stored: Any) -> list[Invalidation]:
    try:
        return [Invalidation(str(tag), int(times), float(when)) for tag, times, when in stored]
    except (TypeError, ValueError):  # absent, or written by another program
        return []
