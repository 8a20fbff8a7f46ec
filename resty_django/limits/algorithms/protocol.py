"""The two-phase protocol for deciding several limits together. Pure; see `limiters.combined`."""

from __future__ import annotations

from collections.abc import Generator

from ..decision import Decision
from ..errors import LimitError

Ask = tuple[int, bool | None]
"""The index of a limiter, and whether it records the request; None: it undoes the recorded request."""
Answers = tuple[int | None, list[Decision | None]]
"""The index of the limiter that refused, and the decisions that recorded or refused the request."""


def two_phases(count: int) -> Generator[Ask, Decision | None, Answers]:
    """Yield the next step, receive its decision, and return the answers.

    If an error is thrown into the generator, undo the recorded requests and raise the error again.
    """
    decisions: list[Decision | None] = [None] * count
    last = count - 1
    for index in range(count):
        decision = yield index, index == last
        if index == last or not decision:
            decisions[index] = decision
        if not decision:
            return index, decisions
    for index in range(last):
        try:
            decisions[index] = yield index, True
        except LimitError:
            yield from _undo(index, last)
            raise
        if not decisions[index]:
            yield from _undo(index, last)
            return index, decisions
    return None, decisions


def _undo(index: int, last: int) -> Generator[Ask, Decision | None, None]:
    for before in (*range(index), last):
        yield before, None
