"""The health probe of the ID service."""

from __future__ import annotations

import time
from collections.abc import Iterator

from resty_django.conf import conf
from resty_django.health import Finding

from . import store
from .engine.rule import compile_rule
from .engine.wall_clock import wall_at
from .errors import BadRule
from .models import IdCounter, IdRule
from .overview import runs_out

ALMOST = 0.9
"""The used share of a cycle (0 to 1) at which a counter is reported."""
AHEAD = 60
"""Seconds by which the shown time of a counter may be ahead of the clock before it is reported."""
HOUR = 3600


def probe() -> Iterator[Finding]:
    """Yield findings for rules that do not compile or whose numbers run out soon, and for counters that are almost used
    up, are ahead of the clock or have another step.
    """
    alias = store.database()
    faults = 0
    rules = list(IdRule.objects.using(alias).filter(enabled=True))
    for rule in rules:
        try:
            compile_rule(rule.spec())
        except Exception as error:
            faults += 1
            yield Finding("error", f"rule {rule.name}", f"The rule does not compile: {error}")
    now = time.time()
    for counter in IdCounter.objects.using(alias).filter(rule__enabled=True).select_related("rule").iterator():
        rule, name = counter.rule, f"counter {counter}"
        try:
            wall = wall_at(now, rule.spec().zone)
        except (BadRule, ValueError):
            continue  # already reported above
        if counter.step != conf.ids.step:
            faults += 1
            yield Finding(
                "error",
                name,
                f"It was created with step {counter.step}, but STEP is {conf.ids.step}. "
                "Confirm the step on its page in the admin.",
            )
        if counter.shown > wall + AHEAD:
            faults += 1
            yield Finding("warning", name, f"Its shown time is {counter.shown - wall} s ahead of this clock.")
        if counter.cycle_end > wall:
            used = (counter.bound - rule.min_counter) / (rule.max_counter - rule.min_counter + 1)
            if counter.bound > rule.max_counter:
                faults += 1
                yield Finding("error", name, "All numbers of this cycle are reserved.")
            elif used >= ALMOST:
                faults += 1
                yield Finding("warning", name, f"{used:.0%} of this cycle's numbers are reserved.")
    for name, seconds in runs_out():
        if 0 < seconds < conf.ids.runs_out_warning:  # 0: already reported above
            faults += 1
            yield Finding(
                "warning",
                f"rule {name}",
                f"At the present pace, its numbers run out in {seconds / HOUR:,.1f} h, before the cycle ends. "
                "Raise its maximum.",
            )
    if not faults:
        yield Finding("ok", "ids", f"{len(rules)} rules compile; no counter is near exhaustion.")
