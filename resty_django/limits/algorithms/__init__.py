"""The algorithms. Pure: each gets the state of a key, the time and the numbers of a limiter, and knows no store.

A module has

- `incoming(state, now, numbers, cost, commit)`: decide on a request;
- `uncommit(state, now, numbers, cost)` and others of that shape: give back, leave, take;
- `decide(numbers, cost, commit, ...)`: the `Decision`, from what is measured on the state. The Lua scripts measure by
  themselves and send the same figures, so both engines share it.

`state` is bytes, None where there is none; `now` is whole milliseconds. The first two return an `Outcome`: the new
state (None: write nothing), seconds for which it is to be kept (0: for ever, None: as before), and the result.

The first `FRAME` bytes of a state belong to the store. A new state has those of the old one, or any where there was
none, so that a store which keeps something beside each state need not cut it off and put it on again.
"""

from __future__ import annotations

from typing import Final, TypeVar

from ..decision import Decision

FRAME: Final = 34
"""Of a dictionary in LMDB."""

R = TypeVar("R")

Outcome = tuple[bytes | None, float | None, R]
Decided = Outcome[Decision]

__all__ = ["FRAME", "Decided", "Outcome"]
