"""The health probe of the ID service."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from resty_django.conf import conf
from resty_django.health import Finding, findings_or

from . import store
from .engine.rule import compile_rule
from .engine.wall_clock import wall_at
from .errors import BadRule
from .models import IdCounter, IdRule
from .overview import LOW_SHARE, runs_out


def probe() -> Iterator[Finding]:
    """Yield findings for rules that do not compile or whose numbers run out soon, and for counters that are almost used
    up, are ahead of the clock or have another step.
    """
    rules = list(IdRule.objects.using(store.database()).filter(enabled=True))
    ok = Finding("ok", "ids", f"{len(rules)} rules compile; no counter is near exhaustion.")
    yield from findings_or(ok, _rules(rules), _counters(), _forecasts())


def _rules(rules: Iterable[IdRule]) -> Iterator[Finding]:
    for rule in rules:
        try:
            compile_rule(rule.spec())
        except Exception as error:
            yield Finding("error", f"rule {rule.name}", f"The rule does not compile: {error}")


def _counters() -> Iterator[Finding]:
    now = time.time()
    counters = IdCounter.objects.using(store.database()).filter(rule__enabled=True).select_related("rule")
    for counter in counters.iterator():
        rule, name = counter.rule, f"counter {counter}"
        try:
            wall = wall_at(now, rule.spec().zone)
        except (BadRule, ValueError):
            continue  # reported as a rule that does not compile
        if counter.step != conf.ids.step:
            yield Finding(
                "error",
                name,
                f"It was created with step {counter.step}, but STEP is {conf.ids.step}. "
                "Confirm the step on its page in the admin.",
            )
        if counter.shown > wall + 60:  # a clock may be a minute ahead
            yield Finding("warning", name, f"Its shown time is {counter.shown - wall} s ahead of this clock.")
        if counter.cycle_end > wall:
            used = (counter.bound - rule.min_counter) / (rule.max_counter - rule.min_counter + 1)
            if counter.bound > rule.max_counter:
                yield Finding("error", name, "All numbers of this cycle are reserved.")
            elif used >= 1 - LOW_SHARE:
                yield Finding("warning", name, f"{used:.0%} of this cycle's numbers are reserved.")


def _forecasts() -> Iterator[Finding]:
    for name, seconds in runs_out():
        if 0 < seconds < conf.ids.runs_out_warning:  # 0: reported as used up
            yield Finding(
                "warning",
                f"rule {name}",
                f"At the present pace, its numbers run out in {seconds / 3600:,.1f} h, before the cycle ends. "
                "Raise its maximum.",
            )
