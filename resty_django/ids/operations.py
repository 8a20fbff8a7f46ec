"""Manual operations on a counter: raise it, lower it, confirm a changed step.

Each is one conditional update, as a reservation is: when the counter moved between look and write, nothing is
overwritten. All take an `IdCounter` of which only the primary key counts, read the row afresh, and return it as it
was written. Beside `Refused` they raise BadRule when the rule's time zone is unknown.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from resty_django.conf import conf

from .engine import segment
from .engine.counter import Clock
from .engine.cycle import Cycle
from .engine.rule import MAX_NUMBER, RuleSpec
from .engine.segment import Row
from .engine.wall_clock import wall_at
from .errors import IdError
from .models import IdCounter, IdRule
from .store import database

_TRIES = 20


class Refused(IdError):
    """The counter cannot be set as asked; the text says why."""

    code: ClassVar[str] = "refused"
    http_status: ClassVar[int] = 409


class Moved(Refused):
    """Numbers were reserved between the read and the write; read again, and repeat."""

    code = "moved"


def standing(counter: IdCounter, *, clock: Clock = time.time) -> Row:
    """Return the counter as the next reservation finds it: in the cycle that holds now, `bound` being the next number.

    `bound` lies above the rule's maximum when the cycle is used up.
    """
    spec = counter.rule.spec()
    row, grant = segment.reserve(
        _row(counter),
        replace(spec, max_counter=MAX_NUMBER),
        wall=wall_at(clock(), spec.zone),
        step=counter.step,
        offset=counter.node_offset,
        want=1,
        name=str(counter),
    )
    return replace(row, bound=grant.numbers.start)


def own_number(spec: RuleSpec, step: int, offset: int, floor: int) -> int:
    """Return the first number of at least `floor` that belongs to the node at `offset` of `step`."""
    first = segment.first_number(spec, step, offset)
    start = max(first, floor)
    return start + (first - start) % step


def is_ahead(counter: IdCounter, *, clock: Clock = time.time) -> bool:
    """Return whether the counter's cycle or shown time lies in the future, as after a clock that had jumped."""
    wall = wall_at(clock(), counter.rule.spec().zone)
    return counter.cycle_start > wall or counter.shown > wall


def raise_counter(counter: IdCounter, *, to: int, clock: Clock = time.time) -> IdCounter:
    """Go on at the node's first number of at least `to`, in the cycle that holds now.

    Numbers that running processes have reserved below `to` may still be given out. `max_counter + 1` uses the cycle
    up. Refused when `to` is below the next number or further above the maximum.
    """
    for _ in range(_TRIES):
        stored = _fresh(counter)
        spec, row = stored.rule.spec(), standing(stored, clock=clock)
        if to < row.bound:
            raise Refused(f"The next number is {row.bound} already: raise the counter to that or more, not to {to}.")
        _check_top(spec, to)
        if swap_row(stored, replace(row, bound=own_number(spec, row.step, stored.node_offset, to))):
            return _fresh(counter)
    raise Moved("The counter is reserved from too fast; try again.")


def lower_counter(counter: IdCounter, *, to: int, cycle_back: bool = False, clock: Clock = time.time) -> IdCounter:
    """Go on at the node's first number of at least `to`: IDs given out from there on come again.

    `cycle_back` also sets cycle and shown time back to now, where a clock that had jumped left them in the future;
    `to` may then lie above the present number too. The rule gets a new version, so that running processes drop the
    numbers they hold with their next look at the rules (IDS["REFRESH"]).
    """
    alias = database()
    with transaction.atomic(using=alias):
        stored = _fresh(counter)
        spec, row = stored.rule.spec(), standing(stored, clock=clock)
        first = segment.first_number(spec, row.step, stored.node_offset)
        if to < first:
            raise Refused(f"This node's first number is {first}: lower the counter to that or more, not to {to}.")
        _check_top(spec, to)
        if cycle_back:
            if not is_ahead(stored, clock=clock):
                raise Refused("The counter's cycle is not ahead of the clock: leave the cycle as it is.")
            wall = wall_at(clock(), spec.zone)
            row = Row(row.step, spec.reset.cycle(wall), row.bound, wall)
        elif to > row.bound:
            raise Refused(f"The next number is {row.bound}: to go on above it, raise the counter instead.")
        if not swap_row(stored, replace(row, bound=own_number(spec, row.step, stored.node_offset, to))):
            raise Moved("Numbers were reserved meanwhile; look at the counter again, and repeat.")
        stored.rule.save(using=alias, update_fields=["updated_at"])
    return _fresh(counter)


def confirm_step(counter: IdCounter, *, floor: int, clock: Clock = time.time) -> IdCounter:
    """Take the counter over to the site's step (IDS["STEP"]), and with it all nodes of its rule and application name.

    `floor`: no node, on this database or another, has given out numbers of this cycle from there on. Every node goes
    on at its first own number of at least `floor` and of all that is reserved here. Nodes of the new step without a
    counter get one there, so that they do not begin with numbers of the old step; counters of nodes that the new
    step does not have are deleted. A counter that has the site's step already is returned as it is.

    Return the counter, or the counter of this site's node (IDS["OFFSET"]) when the counter's node is gone.
    """
    alias, step = database(), conf.ids.step
    with transaction.atomic(using=alias):
        stored = _fresh(counter)
        if stored.step == step:
            return stored
        rule, spec = stored.rule, stored.rule.spec()
        IdRule.objects.using(alias).filter(pk=rule.pk).update(max_names=F("max_names"))  # holds off new counters
        family = IdCounter.objects.using(alias).filter(rule=rule, app_name=stored.app_name)
        rows = {member: standing(member, clock=clock) for member in family.select_related("rule")}
        start = max(floor, *(row.bound for row in rows.values()))
        _check_top(spec, floor)
        for member, row in rows.items():
            if member.node_offset < step:
                new = segment.confirm_step(row, spec, step=step, offset=member.node_offset, floor=start)
                done = swap_row(member, new)
            else:
                done = bool(family.filter(pk=member.pk, bound=member.bound, cycle_start=member.cycle_start).delete()[0])
            if not done:
                raise Moved("Numbers were reserved meanwhile; nothing was changed. Try again.")
        latest = max(rows.values(), key=lambda row: row.cycle.start)
        offsets = {member.node_offset for member in rows}
        now = timezone.now()
        IdCounter.objects.using(alias).bulk_create(
            [
                IdCounter(
                    rule=rule,
                    app_name=stored.app_name,
                    node_offset=offset,
                    step=step,
                    bound=own_number(spec, step, offset, start),
                    cycle_start=latest.cycle.start,
                    cycle_end=latest.cycle.end,
                    shown=latest.shown,
                    cycle_began=now,
                    cycle_first=own_number(spec, step, offset, start),
                )
                for offset in range(step)
                if offset not in offsets
            ],
            batch_size=500,
        )
        kept_offset = stored.node_offset if stored.node_offset < step else conf.ids.offset
        return family.select_related("rule").get(node_offset=kept_offset)


def highest_bound(counter: IdCounter, *, clock: Clock = time.time) -> int:
    """Return the next number above all that is reserved in this cycle by any node of the counter's rule and name."""
    family = IdCounter.objects.using(database()).filter(rule_id=counter.rule_id, app_name=counter.app_name)
    return max(standing(member, clock=clock).bound for member in family.select_related("rule"))


def _check_top(spec: RuleSpec, number: int) -> None:
    if number > spec.max_counter + 1:
        raise Refused(f"The maximum of the rule is {spec.max_counter}: {number} lies above it.")


def _fresh(counter: IdCounter) -> IdCounter:
    fresh = IdCounter.objects.using(database()).filter(pk=counter.pk).select_related("rule").first()
    if fresh is None:
        raise Refused("The counter does not exist any more.")
    return fresh


def _row(counter: IdCounter) -> Row:
    return Row(counter.step, Cycle(counter.cycle_start, counter.cycle_end), counter.bound, counter.shown)


def swap_row(stored: IdCounter, new: Row) -> bool:
    """Write `new` if the row still is as `stored` was read. The forecast starts anew from there."""
    now = timezone.now()
    unmoved = IdCounter.objects.using(database()).filter(
        pk=stored.pk,
        step=stored.step,
        bound=stored.bound,
        cycle_start=stored.cycle_start,
        cycle_end=stored.cycle_end,
        shown=stored.shown,
    )
    return bool(
        unmoved.update(
            step=new.step,
            bound=new.bound,
            shown=new.shown,
            cycle_start=new.cycle.start,
            cycle_end=new.cycle.end,
            cycle_began=now,
            cycle_first=new.bound,
            updated_at=now,
        )
    )
