"""The algorithms. Pure: each gets the state of a key, the time and the numbers of a limiter, and knows no store.

A module has

- `incoming(state, now, numbers, cost, commit)`: decide on a request, and record it where `commit`;
- `uncommit(state, now, numbers, cost)` and others with these arguments: undo a request, leave, take;
- `decide(numbers, cost, commit, ...)`: build the `Decision` from the figures that were measured on the state. The Lua
  scripts measure by themselves and send the same figures, so both engines share it.

`state` is bytes, None where the key is new; `now` is whole milliseconds. The first two return an `Outcome`: the new
state (None: write nothing), seconds for which it is kept (0: indefinitely, None: as before), and the result.

The first `FRAME` bytes of a state belong to the store. A new state keeps those of the old one, or has any where there
was none, so that a store which keeps a header with each state need not cut it off and put it back.

All modules have the same parts: the layout of the state, `Numbers`, `incoming` (the fast path: one call, and
`decision_from` instead of the classmethods of `Decision`), `decide`, `uncommit`, and `_read`, which raises
`ForeignData` for bytes of another layout.
"""

from __future__ import annotations

from typing import Final, TypeVar

from .decision import Decision

FRAME: Final = 34
"""Bytes of the header that a dictionary in LMDB keeps with each item."""

R = TypeVar("R")

Outcome = tuple[bytes | None, float | None, R]
Decided = Outcome[Decision]

__all__ = ["FRAME", "Decided", "Outcome"]
