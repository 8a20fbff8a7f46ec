"""The algorithms: pure functions of a key's state, the time and a limiter's numbers, independent of the store.

Each module has

- `incoming(state, now, numbers, cost, commit)`: decide on a request, and record it if `commit`;
- `uncommit(state, now, numbers, cost)` and others with these arguments: undo a request, leave, take;
- `decide(numbers, cost, commit, ...)`: build the `Decision` from values computed from the state. The Lua scripts
  compute and send the same values, so both engines share this function.

`state` is bytes, None if the key is new; `now` is whole milliseconds. The first two return an `Outcome`: the new
state (None: write nothing), seconds for which it is kept (0: indefinitely, None: as before), and the result.

The first `FRAME` bytes of a state belong to the store. A new state copies them from the old one, or has any bytes
there. So a store with a header before each state does not have to remove and add it.

All modules have the same parts: the layout of the state, `Numbers`, `incoming` (the fast path: one call, and
`decision_from` instead of the classmethods of `Decision`), `decide`, `uncommit`, and `_read`, which raises
`ForeignData` for bytes of another layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from ..decision import Decision

FRAME: Final = 34
"""The size in bytes of the header that a shared dictionary in LMDB stores with each item."""

R = TypeVar("R")

Outcome = tuple[bytes | None, float | None, R]
Decided = Outcome[Decision]


class Operation(NamedTuple):
    """An operation on a key: a pure function, and the name of the function in the algorithm's Lua script.

    `flag`: whether its result is True or None; a script returns 1 for True.
    """

    pure: Callable[[bytes | None, int, Any, Any], Outcome[Any]]
    lua: str
    flag: bool = False


class Algorithm(NamedTuple):
    """The parts of a module of this package, and the name of its Lua script."""

    lua: str
    incoming: Callable[[bytes | None, int, Any, Any, bool], Decided]
    decide: Callable[..., Decision]
    sent: Callable[..., bytes]
    measured: Callable[[bytes], tuple[Any, ...]]
    passable: Callable[[Any, Any], bool]
    uncommit: Operation


__all__ = ["FRAME", "Algorithm", "Decided", "Operation", "Outcome"]
