"""The health probe of limits, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from resty_django.conf import conf
from resty_django.health import Finding, findings_or
from resty_django.shdict import SharedDictError

from .facts import count_evictions, facts
from .limiters.base import Limiter
from .models import LimitOverride, LimitPolicy
from .policies.registry import declared_policies
from .requests.chosen_rates import tier_problem
from .specs.override import find_problems as find_override_problems
from .specs.policy import PolicySpec, build, rate_specs
from .specs.policy_validation import BadPolicy, find_problems
from .statistics.reporter import Totals

REPORTED_MINUTES: Final = 10
"""The number of past minutes for which refusals, and decisions without the store, are reported."""


def probe() -> Iterator[Finding]:
    """Yield findings for invalid policies and overrides, for limits that refuse many requests, for decisions that any
    process made while the store was down, and for states that the full store evicted.
    """
    specs = {row.name: row.spec() for row in LimitPolicy.objects.newest()}
    declared: dict[str, PolicySpec] = {}
    faults: list[Finding] = []
    try:
        declared = declared_policies()
    except BadPolicy as error:
        faults.append(Finding("error", "limits", f"A rule of the setting RULES cannot be used. {error}"))
    all_specs = declared | specs
    policies = "1 policy" if len(all_specs) == 1 else f"{len(all_specs)} policies"
    ok = Finding("ok", "limits", f"{policies} valid; all decisions used the store.")
    yield from findings_or(ok, faults, _policies(specs), _overrides(all_specs), _tiers(all_specs), _decisions())


def _policies(specs: dict[str, PolicySpec]) -> Iterator[Finding]:
    for name, spec in specs.items():
        for field, text in find_problems(spec).items():
            yield Finding("error", f"policy {name}", f"The policy is not valid. {field}: {text}")


def _overrides(specs: dict[str, PolicySpec]) -> Iterator[Finding]:
    def limiters(series: str) -> list[Limiter]:
        spec = specs.get(series)
        return [] if spec is None or find_problems(spec) else [build(one) for one in rate_specs(spec)]

    for override in LimitOverride.objects.newest():
        for field, text in find_override_problems(override.spec(), limiters).items():
            yield Finding("error", "overrides", f"The override “{override}” is not valid. {field}: {text}")


def _tiers(specs: dict[str, PolicySpec]) -> Iterator[Finding]:
    tiered = sorted(name for name, spec in specs.items() if spec.tiers)
    problem = tier_problem() if tiered else ""
    if problem:
        yield Finding("error", f"policy {tiered[0]}", problem)


def _decisions() -> Iterator[Finding]:
    try:
        now = facts()
        evictions = count_evictions()
    except SharedDictError as error:
        yield Finding("error", f"store {conf.limits.store}", f"The store does not answer: {error}")
        return
    for name, history in now.histories.items():
        totals = history.last(REPORTED_MINUTES)
        if totals.failed:
            yield Finding("warning", f"limit {name}", _without(totals))
        refused = max(minute.counts.refused for minute in history.minutes[-REPORTED_MINUTES:])
        if refused > conf.limits.refusals_warning > 0 and name in now.limits:
            yield Finding("warning", f"limit {name}", _refused(refused))
    if evictions:
        yield Finding("warning", f"store {conf.limits.store}", _evicted(evictions))


def _evicted(count: int) -> str:
    return (
        f"The store was full and evicted {count:,} items before they expired, since its creation. Limits of their keys "
        "started again. Raise its SIZE, or look for a client that forges its key."
    )


def _refused(count: int) -> str:
    return (
        f"In one of the last {REPORTED_MINUTES} minutes, it refused {count:,} requests. Its page in the admin shows "
        "the most refused keys. Raise the limit if it is too low."
    )


def _without(totals: Totals) -> str:
    return f"In the last {REPORTED_MINUTES} minutes, {totals.failed:,} decisions were made without the store."
