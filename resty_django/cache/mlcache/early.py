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
