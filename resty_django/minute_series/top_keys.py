"""The most frequent keys, in fixed memory: space-saving summaries (Metwally, Agrawal, El Abbadi 2005). Pure.

A count is never too low, and too high by at most its error; a key that is not in a summary is at most as frequent as
the last one in it. Two summaries are merged as in "Mergeable Summaries" (Agarwal et al., 2012), which preserves this.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple


class FrequentKey(NamedTuple):
    """A key, its count, and the error: the maximum by which the count may be too high."""

    key: str
    times: int
    error: int = 0


class TopKeys:
    """Counts keys; stores at most eight times `size` of them, and `longest` characters of each.

    With more keys, all but the `size` most frequent are dropped at once, so that `add` is cheap on average. A key
    that is added afterwards may be one that was dropped.
    """

    __slots__ = ("_counts", "_errors", "_floor", "longest", "size")

    def __init__(self, size: int = 32, longest: int = 200) -> None:
        self.size = size
        self.longest = longest
        self._counts: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        self._floor = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: str) -> None:
        if len(key) > self.longest:
            key = shortened(key, self.longest)
        counts = self._counts
        if key in counts:
            counts[key] += 1
            return
        if len(counts) >= 8 * self.size:
            self._drop()
            counts = self._counts
        counts[key] = self._floor + 1
        if self._floor:
            self._errors[key] = self._floor

    def _drop(self) -> None:
        *most, (_, dropped) = heapq.nlargest(self.size + 1, self._counts.items(), key=itemgetter(1))
        errors = self._errors
        self._floor = max(self._floor, dropped)
        self._counts = dict(most)
        self._errors = {key: errors[key] for key, _ in most if key in errors}

    def most(self) -> list[FrequentKey]:
        """Return the most frequent keys, at most `size`, the most frequent first."""
        errors = self._errors
        keys = [FrequentKey(key, count, errors.get(key, 0)) for key, count in self._counts.items()]
        keys.sort(key=_order)
        return keys[: self.size]


def shortened(key: str, longest: int) -> str:
    """Return the key, cut to `longest` characters with an ellipsis."""
    return key if len(key) <= longest else key[: longest - 1] + "…"


def merged(first: Iterable[FrequentKey], second: Iterable[FrequentKey], size: int) -> list[FrequentKey]:
    """Return two summaries of at most `size` keys merged into one, the most frequent first."""
    ours = {entry.key: entry for entry in first}
    theirs = {entry.key: entry for entry in second}
    our_floor, their_floor = _floor(ours, size), _floor(theirs, size)
    keys = []
    for key in ours.keys() | theirs.keys():
        our_entry = ours.get(key) or FrequentKey(key, our_floor, our_floor)
        their_entry = theirs.get(key) or FrequentKey(key, their_floor, their_floor)
        keys.append(FrequentKey(key, our_entry.times + their_entry.times, our_entry.error + their_entry.error))
    keys.sort(key=_order)
    return keys[:size]


def _order(entry: FrequentKey) -> tuple[int, str]:
    return -entry.times, entry.key


def _floor(summary: dict[str, FrequentKey], size: int) -> int:
    """Return the highest count of a key that the summary does not list."""
    return min(entry.times for entry in summary.values()) if len(summary) >= size else 0
