"""The keys that come most often, in fixed memory: space-saving summaries (Metwally, Agrawal, El Abbadi 2005). Pure.

A count is never too low, and too high by no more than the error beside it; what is not in a summary came no more
often than the last one in it. Two summaries are merged as in "Mergeable Summaries" (Agarwal et al., 2012), which
keeps that true.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple


class Frequent(NamedTuple):
    """A key, how often it came at most, and by how much that may be too high."""

    key: str
    times: int
    error: int = 0


class TopKeys:
    """Counts keys; remembers at most eight times `size` of them, and `longest` characters of each.

    When there are more, all but the `size` most frequent are dropped at once, so that one `add` costs little on the
    whole. A key that comes after that may be one that was dropped.
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
        *kept, (_, dropped) = heapq.nlargest(self.size + 1, self._counts.items(), key=itemgetter(1))
        errors = self._errors
        self._floor = max(self._floor, dropped)
        self._counts = dict(kept)
        self._errors = {key: errors[key] for key, _ in kept if key in errors}

    def most(self) -> list[Frequent]:
        """The most frequent keys, at most `size`, the first of them first."""
        errors = self._errors
        found = [Frequent(key, count, errors.get(key, 0)) for key, count in self._counts.items()]
        found.sort(key=_order)
        return found[: self.size]


def shortened(key: str, longest: int) -> str:
    """The key as it is listed where it is longer than that."""
    return key if len(key) <= longest else key[: longest - 1] + "…"


def merged(first: Iterable[Frequent], second: Iterable[Frequent], size: int) -> list[Frequent]:
    """Two summaries of at most `size` keys as one, the most frequent first."""
    ours = {one.key: one for one in first}
    theirs = {one.key: one for one in second}
    our_floor, their_floor = _floor(ours, size), _floor(theirs, size)
    found = []
    for key in ours.keys() | theirs.keys():
        one = ours.get(key) or Frequent(key, our_floor, our_floor)
        other = theirs.get(key) or Frequent(key, their_floor, their_floor)
        found.append(Frequent(key, one.times + other.times, one.error + other.error))
    found.sort(key=_order)
    return found[:size]


def _order(one: Frequent) -> tuple[int, str]:
    return -one.times, one.key


def _floor(summary: dict[str, Frequent], size: int) -> int:
    """How often a key may have come that a summary does not have."""
    return min(one.times for one in summary.values()) if len(summary) >= size else 0


__all__ = ["Frequent", "TopKeys", "merged", "shortened"]
