"""Probabilistic early recomputation (XFetch). Pure.

Source: A. Vattani, F. Chierichetti, K. Lowenstein: "Optimal Probabilistic Cache Stampede Prevention", Proceedings of
the VLDB Endowment 8 (8), 2015. A value is recomputed as soon as `now - took * beta * log(random()) >= expiry`. `took`
is the duration of its computation, so slow values are recomputed earlier.

The paper draws a number for each read. Here each process draws one for each stored value, because then a hit of L1
costs nothing: the item in L1 expires earlier by the number that was drawn.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Final

from ..storage.records import Record, stored_at

Draw = Callable[[str, float], float]
"""Takes the key and the time of storing; returns a number above 0, at most 1."""

_SEED: Final = random.SystemRandom().random()
_MASK: Final = 2**53 - 1
"""The bits of a float's fraction."""


def draw(key: str, stored: float) -> float:
    """Return the number for a value, which is always the same in a process."""
    return ((hash(f"{_SEED}:{os.getpid()}:{stored}:{key}") & _MASK) + 1) / (_MASK + 1)


def lead(took: float, beta: float, drawn: float) -> float:
    """Return the seconds before its expiry at which a value is recomputed."""
    return -took * beta * math.log(drawn)


class EarlyRecomputation:
    """Decides when this process replaces a record before it expires. `clock`: seconds, as in records.

    `beta`: the option `early`. `took`: seconds of the callback (0: unknown).
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.draw: Draw = draw
        self._clock = clock

    def is_due(self, key: str, record: Record, beta: float | None) -> bool:
        """Return whether this process is to replace the record, although it has not expired."""
        return bool(
            beta
            and record.ttl
            and record.took
            and self._lead(key, record.stored, record.took, beta) >= record.remaining(self._clock())
        )

    def seconds(self, key: str, record: Record, beta: float | None) -> float:
        """Return the seconds before the record's expiry at which it expires in L1.

        If it is to be replaced now, L1 serves it for as long as the callback took.
        """
        if not beta or not record.ttl or not record.took:
            return 0.0
        seconds, remaining = self._lead(key, record.stored, record.took, beta), record.remaining(self._clock())
        return seconds if seconds < remaining else max(0.0, remaining - record.took)

    def seconds_of_new(self, key: str, record: bytes, ttl: float, took: float, beta: float | None) -> float:
        """Return the seconds before its expiry at which a record of this process expires in L1."""
        return self._lead(key, stored_at(record), took, beta) if beta and took and ttl else 0.0

    def _lead(self, key: str, stored: float, took: float, beta: float) -> float:
        return lead(took, beta, self.draw(key, stored))
