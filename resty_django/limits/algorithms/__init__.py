"""The algorithms: pure functions of a key's state, the time and a limiter's configuration, independent of the store.

    config = FixedWindowConfig(limit=3, window=60_000)
    data, ttl, decision = fixed_window.incoming(None, now, config, cost=1, commit=True)  # the first request of a key
    data, ttl, decision = fixed_window.incoming(data, now + 5, config, cost=1, commit=True)

You can read each module alone. All have the same parts, in this order:

- the formulas, where they come from, and an example;
- the configuration: the numbers of a limiter, in the units of the formulas;
- the state: the values stored for a key;
- `incoming(data, now, config, cost, commit)`: decide on a request, and record it if `commit`;
- `decide(config, cost, commit, ...)`: build the `Decision` from values computed from the state. The Lua scripts compute
  and send the same values, so both engines share this function;
- `uncommit(data, now, config, cost)`, and others with these arguments: undo a request, leave, take;
- `can_pass(config, cost)`: whether a request of that cost can pass at any time.

`data` are the bytes of the state, None if the key is new; `now` is whole milliseconds. Functions that may change the
state return an `Outcome`. Those that read it raise `ForeignData` for bytes of another layout, whose length differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct

from ..decision import Decision
from ..errors import ForeignData

FRAME: Final = 34
"""The size in bytes of the header of an item in LMDB, with which each state begins.

It belongs to the store: a new state copies it from the old one, or begins with any bytes. So a store that has it need
not remove it from each state and add it again.
"""
KEEP_SLOT_MS: Final = 2**16
"""Time is divided into slots of this length. Only the first request of a key in each slot sets the expiry of its state,
because a write that sets it is slower."""

R = TypeVar("R")

Outcome = tuple[bytes | None, float | None, R]
"""The new state (None: write nothing), seconds for which it is kept (0: indefinitely, None: as before), the result."""


class StateOperation(Struct, frozen=True):
    """An operation on the state of a key: a pure function, and its name in the algorithm's Lua script.

    `flag`: whether its result is True or None; a script returns 1 for True.
    """

    pure: Callable[[bytes | None, int, Any, int], Outcome[float | None]]
    lua: str
    flag: bool = False


class Algorithm(Struct, frozen=True):
    """The functions of a module of this package, and the name of its Lua script."""

    lua: str
    incoming: Callable[[bytes | None, int, Any, int, bool], Outcome[Decision]]
    decide: Callable[..., Decision]
    can_pass: Callable[[Any, int], bool]
    uncommit: StateOperation


def foreign_data(expected: str) -> ForeignData:
    """Return the error for a state with another layout."""
    return ForeignData(f"shdict abused by other users: the key holds no {expected}.")


__all__ = ["FRAME", "KEEP_SLOT_MS", "Algorithm", "Outcome", "StateOperation", "foreign_data"]
