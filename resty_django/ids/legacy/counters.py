"""Positions of imported counters: where a counter of id_server continues.

A row of id_server has a value *ahead* of the counter, and the time when the value was saved. The next number is not
simply "value plus step", for three reasons:

- Cycles begin at midnight of *standard* time, and a row is saved only once per batch. In summer, a server uses
  yesterday's numbers until one o'clock, perhaps without saving. So the row's cycle is taken from the last moment at
  which id_server may have used those numbers.
- The step is not stored. A value that does not belong to its node was saved under another step, and numbers up to it
  may have been issued that belong to other nodes now: then all nodes continue above it.
- After the maximum, id_server wraps around and repeats numbers. The table does not show this.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone

from ..engine.cycle import Cycle
from ..engine.rule import RuleSpec
from ..engine.segment import first_number
from ..engine.wall_clock import wall_at
from ..models import IdCounter, IdRule
from ..operations import own_number
from .config import Refused
from .table import IdServerRow

AHEAD = 60
"""Seconds by which the time in a row may be ahead of this clock."""


@dataclass
class Standing:
    """The position of one imported counter. `goes_on`: whether it continues in the current cycle instead of restarting.

    `stored` is the existing counter, if any.
    """

    app: str
    node_offset: int
    step: int
    cycle: Cycle
    bound: int
    shown: int
    goes_on: bool
    stored: IdCounter | None = None

    def row(self, rule: IdRule) -> IdCounter:
        """Return a new, unsaved counter."""
        return IdCounter(
            rule=rule,
            app_name=self.app,
            node_offset=self.node_offset,
            step=self.step,
            bound=self.bound,
            cycle_start=self.cycle.start,
            cycle_end=self.cycle.end,
            shown=self.shown,
            cycle_began=timezone.now(),
            cycle_first=self.bound,
        )

    def move(self, alias: str) -> bool:
        """Overwrite the stored counter. Return False if it has changed since it was read."""
        stored, now = self.stored, timezone.now()
        assert stored is not None  # noqa: S101
        unmoved = IdCounter.objects.using(alias).filter(
            pk=stored.pk,
            step=stored.step,
            bound=stored.bound,
            cycle_start=stored.cycle_start,
            cycle_end=stored.cycle_end,
        )
        return bool(
            unmoved.update(
                bound=self.bound,
                cycle_start=self.cycle.start,
                cycle_end=self.cycle.end,
                shown=self.shown,
                cycle_began=now,
                cycle_first=self.bound,
                updated_at=now,
            )
        )


def counters_of(
    rule: IdRule, rows: Sequence[IdServerRow], *, step: int, now: float, notices: list[str]
) -> list[Standing]:
    """Return where a rule's counters continue. `now` is epoch seconds. Raise Refused if a row is from the future."""
    spec = rule.spec()
    present = spec.reset.cycle(wall_at(now, spec.zone))
    by_app: dict[str, list[IdServerRow]] = defaultdict(list)
    for row in rows:
        if row.saved_at > now + AHEAD:
            saved = datetime.fromtimestamp(row.saved_at, spec.zone)
            raise Refused(
                f"The row of {row.rule}/{row.app} was saved at {saved:%Y-%m-%d %H:%M:%S}, ahead of this clock. "
                "Correct the clock, or update_time in the table."
            )
        by_app[row.app].append(row)
    counters = []
    for app, mine in by_app.items():
        standings = [_standing(spec, row, step, now, present) for row in mine if row.node_offset < step]
        strange = [
            row
            for row in mine
            if not _belongs(spec, row, step) and _standing(spec, row, step, now, present).cycle.end > present.start
        ]
        if strange:
            floor = 1 + max(row.value for row in mine)
            notices.append(
                f"{rule.name}/{app} has rows with an id_step other than {step}: all nodes continue from {floor}, above "
                "all numbers that any of them may have issued."
            )
            wall = wall_at(now, spec.zone)
            standings = [
                Standing(app, offset, step, present, own_number(spec, step, offset, floor), wall, True)
                for offset in range(step)
            ]
        counters += standings
    return counters


def merge(rule: IdRule, standings: list[Standing], *, step: int, alias: str, notices: list[str]) -> None:
    """Merge the standings with the rule's existing counters; no counter decreases."""
    spec = rule.spec()
    stored = {(row.app_name, row.node_offset): row for row in rule.counters.using(alias).select_related("rule")}
    for row in stored.values():
        if row.step != step:
            raise Refused(
                f"Counter {row} was created with step {row.step}, but the configuration has id_step {step}. Change it "
                "to that step first, with manage.py confirm_id_step."
            )
    joined = 0
    for standing in list(standings):
        old = stored.get((standing.app, standing.node_offset))
        if old is None:
            continue
        joined += 1
        if old.cycle_start >= standing.cycle.end:
            standings.remove(standing)
            continue
        standing.stored = old
        if standing.cycle.start < old.cycle_end:
            standing.bound = own_number(spec, step, standing.node_offset, max(standing.bound, old.bound))
            standing.cycle = Cycle(old.cycle_start, max(old.cycle_end, standing.cycle.end))
            standing.shown = max(standing.shown, old.shown)
    if joined:
        notices.append(
            f"Rule {rule.name} already has {joined} of these counters: each continues from the higher number."
        )


def _standing(spec: RuleSpec, row: IdServerRow, step: int, now: float, present: Cycle) -> Standing:
    wall = wall_at(_last_use(row.saved_at, now, spec.reset.seconds, spec.zone), spec.zone)
    cycle = spec.reset.cycle(wall)
    bound = own_number(spec, step, row.node_offset % step, row.value + 1)
    return Standing(row.app, row.node_offset, step, cycle, bound, wall, cycle.end > present.start)


def _belongs(spec: RuleSpec, row: IdServerRow, step: int) -> bool:
    """Return whether the row may have been saved under this step."""
    return row.node_offset < step and (row.value - first_number(spec, step, row.node_offset)) % step == 0


def _last_use(saved_at: int, now: float, seconds: int, zone: ZoneInfo) -> float:
    """Return the last time up to `now` at which id_server may have used the numbers of a row (epoch seconds)."""
    if not seconds:
        return max(saved_at, now)
    local = datetime.fromtimestamp(saved_at, zone)
    standard = int(((local.utcoffset() or timedelta()) - (local.dst() or timedelta())).total_seconds())
    turn = ((saved_at + standard) // seconds + 1) * seconds - standard
    return max(saved_at, min(math.floor(now), turn - 1))
