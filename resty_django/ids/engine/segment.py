"""Reservations: how the stored row of a counter changes when a segment is reserved.

Pure functions; the store only has to write the new row in one atomic step if the old row is unchanged. They keep these
invariants, whatever happens to clocks:

1. Within a cycle of a counter, the bound only grows, and each number is part of one reservation only.
2. The cycles of a counter are disjoint and in order; every ID shows a time inside its own cycle. A past cycle is never
   entered again: while the clock is behind the stored cycle, the stored cycle continues.
3. If a rule's reset period is edited in mid-cycle, the counter continues without a reset until a cycle of the new
   period begins that does not overlap the stored one. The stored cycle covers every cycle, of the period set at the
   time, in which a number was reserved; so an ID that shows its cycle is never issued twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import Exhausted, StepChanged
from .cycle import NO_END, Cycle
from .rule import RuleSpec
from .wall_clock import END, epoch_of


@dataclass(frozen=True, slots=True)
class CounterRow:
    """A stored counter: `bound` is the next unreserved number, `shown` the highest wall second known to be shown."""

    step: int
    cycle: Cycle
    bound: int
    shown: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A reserved segment: `numbers`, to be shown with times inside `cycle`, none before `shown`."""

    numbers: range
    cycle: Cycle
    shown: int


def first_number(spec: RuleSpec, step: int, offset: int) -> int:
    """Return the first number of a cycle for the node at `offset` of `step`."""
    return spec.min_counter + (spec.anchor + offset - spec.min_counter) % step


def reserve(
    row: CounterRow | None, spec: RuleSpec, *, wall: int, step: int, offset: int, want: int, name: str = ""
) -> tuple[CounterRow, Grant]:
    """Take `want` numbers, or all that the cycle has left, and return the new row and the segment.

    `wall` is the current wall second. Raise Exhausted if the cycle has no numbers left, and StepChanged if the row was
    created with another step.
    """
    first = first_number(spec, step, offset)
    now = wall if row is None else max(wall, row.shown)
    cycle = spec.reset.cycle(now)
    if row is None:
        row = CounterRow(step, cycle, first, now)
    elif row.step != step:
        raise StepChanged(
            f"Counter {name} was created with step {row.step}, but this site uses step {step}. Set "
            "RESTY_DJANGO['IDS']['STEP'] back, or confirm the step on the counter's page in the admin."
        )
    else:
        row = _enter(row, cycle, now, first)
    bound = row.bound
    if bound < first:
        bound += -(-(first - bound) // step) * step
    available = (spec.max_counter - bound) // step + 1
    if available <= 0:
        ends, never = row.cycle.end, row.cycle.end >= END
        raise Exhausted(
            f"Counter {name} has given out all its numbers up to {spec.max_counter}."
            + ("" if never else " It starts again with the next cycle."),
            None if never else epoch_of(ends, spec.zone),
        )
    stop = bound + min(want, available) * step
    return replace(row, bound=stop), Grant(range(bound, stop, step), Cycle(row.cycle.start, cycle.end), row.shown)


def _enter(row: CounterRow, cycle: Cycle, now: int, first: int) -> CounterRow:
    """Return the row as of `now`, which is in `cycle` according to the current rule."""
    if cycle.start >= row.cycle.end:
        return CounterRow(row.step, cycle, first, now)
    if row.cycle.end >= NO_END > cycle.end:
        return replace(row, cycle=Cycle(max(row.cycle.start, cycle.start), cycle.end), shown=now)
    return replace(row, cycle=Cycle(row.cycle.start, max(row.cycle.end, cycle.end)), shown=now)


def give_back(row: CounterRow, cycle: Cycle, tail: range, shown: int) -> CounterRow | None:
    """Return the row after returning the unused `tail` of a segment; None if numbers after it are already reserved."""
    if not tail or row.cycle.start != cycle.start or row.bound != tail.stop or row.step != tail.step:
        return None
    return replace(row, bound=tail.start, shown=max(row.shown, shown))


def confirm_step(row: CounterRow, spec: RuleSpec, *, step: int, offset: int, floor: int) -> CounterRow:
    """Return the row with another step: it continues at its node's first number not below `floor` and the old bound."""
    first = first_number(spec, step, offset)
    start = max(floor, row.bound, first)
    return replace(row, step=step, bound=start + (first - start) % step)
