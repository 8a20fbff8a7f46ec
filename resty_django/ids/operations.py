"""Manual operations on a counter: raise it, lower it, confirm a changed step.

Like a reservation, each is one conditional update: if the counter moves between read and write, nothing is overwritten.
All take an `IdCounter`, use only its primary key, read the row again, and return it as written. They raise
`CounterRefused`, and BadRule if the rule's time zone is unknown.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from resty_django.conf import conf
from resty_django.text.localized import grouped

from .engine import segment
from .engine.counter import Clock
from .engine.rule import MAX_NUMBER, RuleSpec
from .engine.segment import CounterRow
from .engine.wall_clock import wall_at
from .errors import IdError
from .models import IdCounter, IdRule
from .store import database, row_of, write_row


class CounterRefused(IdError):
    """The counter cannot be set as requested; the message says why."""

    code: ClassVar[str] = "refused"
    http_status: ClassVar[int] = 409


class Moved(CounterRefused):
    """Numbers were reserved between the read and the write; read the counter again and retry."""

    code = "moved"


def standing(counter: IdCounter, *, clock: Clock = time.time) -> CounterRow:
    """Return the counter as the next reservation finds it: in the current cycle, with `bound` as the next number.

    `bound` is above the rule's maximum if the cycle is used up.
    """
    spec = counter.rule.spec()
    row, grant = segment.reserve(
        row_of(counter),
        replace(spec, max_counter=MAX_NUMBER),
        wall=wall_at(clock(), spec.zone),
        step=counter.step,
        offset=counter.node_offset,
        want=1,
        name=str(counter),
    )
    return replace(row, bound=grant.numbers.start)


def own_number(spec: RuleSpec, step: int, offset: int, floor: int) -> int:
    """Return the first number not below `floor` that belongs to the node at `offset` of `step`."""
    first = segment.first_number(spec, step, offset)
    start = max(first, floor)
    return start + (first - start) % step


def is_ahead(counter: IdCounter, *, clock: Clock = time.time) -> bool:
    """Return whether the counter's cycle or shown time is in the future, for example after a clock jump."""
    wall = wall_at(clock(), counter.rule.spec().zone)
    return counter.cycle_start > wall or counter.shown > wall


def raise_counter(counter: IdCounter, *, to: int, clock: Clock = time.time) -> IdCounter:
    """Make the counter continue at the node's first number not below `to`, in the current cycle.

    Running processes may still issue reserved numbers below `to`. `max_counter + 1` uses up the cycle. Raise
    CounterRefused if `to` is below the next number or above `max_counter + 1`.
    """
    for _try in range(20):
        stored = _fresh(counter)
        spec, row = stored.rule.spec(), standing(stored, clock=clock)
        if to < row.bound:
            text = _("The next number is already %(next)s. Raise the counter to that or more, not to %(to)s.")
            raise CounterRefused(text % {"next": grouped(row.bound), "to": grouped(to)})
        _check_top(spec, to)
        new = replace(row, bound=own_number(spec, row.step, stored.node_offset, to))
        if swap_row(stored, new):
            return _fresh(counter)
    raise Moved(_("Other processes reserve numbers too fast. Try again."))


def lower_counter(counter: IdCounter, *, to: int, cycle_back: bool = False, clock: Clock = time.time) -> IdCounter:
    """Make the counter continue at the node's first number not below `to`: IDs from there on are issued again.

    `cycle_back` also sets cycle and shown time back to now, if a clock jump left them in the future; `to` may then be
    above the current number, too. The rule gets a new version, so that running processes drop their reserved numbers
    when they next check the rules (IDS["REFRESH"]). Raise CounterRefused if `to` is out of range.
    """
    alias = database()
    with transaction.atomic(using=alias):
        stored = _fresh(counter)
        spec, row = stored.rule.spec(), standing(stored, clock=clock)
        first = segment.first_number(spec, row.step, stored.node_offset)
        if to < first:
            text = _("This node's first number is %(first)s. Lower the counter to that or more, not to %(to)s.")
            raise CounterRefused(text % {"first": grouped(first), "to": grouped(to)})
        _check_top(spec, to)
        if cycle_back:
            if not is_ahead(stored, clock=clock):
                raise CounterRefused(_("The counter's cycle is not ahead of the clock. Do not set the cycle back."))
            wall = wall_at(clock(), spec.zone)
            row = CounterRow(row.step, spec.reset.cycle(wall), row.bound, wall)
        elif to > row.bound:
            text = _("The next number is %(next)s. To continue above it, raise the counter instead.")
            raise CounterRefused(text % {"next": grouped(row.bound)})
        new = replace(row, bound=own_number(spec, row.step, stored.node_offset, to))
        if not swap_row(stored, new):
            raise Moved(_("Numbers were reserved in the meantime. Check the counter and try again."))
        stored.rule.save(using=alias, update_fields=["updated_at"])
    return _fresh(counter)


def confirm_step(counter: IdCounter, *, floor: int, clock: Clock = time.time) -> IdCounter:
    """Change the counter, and all nodes of its rule and application name, to the site's step (IDS["STEP"]).

    `floor` must be above every number that any node, on this database or another, has issued in this cycle. Every node
    continues at its first number that is not below `floor` and above all numbers reserved here. Nodes of the new step
    without a counter get one there, so that they do not use numbers of the old step; counters of nodes that the new
    step does not have are deleted. A counter that already has the site's step is returned unchanged.

    Return the counter, or the counter of this site's node (IDS["OFFSET"]) if the counter's node no longer exists.
    """
    alias, step = database(), conf.ids.step
    with transaction.atomic(using=alias):
        stored = _fresh(counter)
        if stored.step == step:
            return stored
        rule, spec = stored.rule, stored.rule.spec()
        IdRule.objects.using(alias).filter(pk=rule.pk).update(max_names=F("max_names"))  # blocks new counters
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
                raise Moved(_("Numbers were reserved in the meantime. Nothing was changed. Try again."))
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
    """Return the next number above all numbers reserved in this cycle by any node of the counter's rule and name."""
    family = IdCounter.objects.using(database()).filter(rule_id=counter.rule_id, app_name=counter.app_name)
    return max(standing(member, clock=clock).bound for member in family.select_related("rule"))


def _check_top(spec: RuleSpec, number: int) -> None:
    if number > spec.max_counter + 1:
        text = _("%(number)s is above the rule's maximum. Use at most %(max)s.")
        raise CounterRefused(text % {"number": grouped(number), "max": grouped(spec.max_counter)})


def _fresh(counter: IdCounter) -> IdCounter:
    fresh = IdCounter.objects.using(database()).filter(pk=counter.pk).select_related("rule").first()
    if fresh is None:
        raise CounterRefused(_("The counter no longer exists."))
    return fresh


def swap_row(stored: IdCounter, new: CounterRow) -> bool:
    now = timezone.now()
    return write_row(database(), stored, new, cycle_began=now, cycle_first=new.bound, updated_at=now)
