"""The health probe of limits, for `manage.py resty_check`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from resty_django.conf import conf
from resty_django.health import Finding
from resty_django.shdict import SharedDictError

from .policies.export import stored
from .policies.registry import declared_policies
from .policies.spec import BadPolicy, PolicySpec, find_problems
from .statistics.reporter import Totals, stats, summed

MINUTES: Final = 10
"""The number of past minutes for which decisions without the store are reported."""


def probe() -> Iterator[Finding]:
    """Yield findings for invalid policies, and for decisions that any process made while the store was down."""
    faults = 0
    rows = stored()
    declared: dict[str, PolicySpec] = {}
    try:
        declared = declared_policies()
    except BadPolicy as error:
        faults += 1
        yield Finding("error", "limits", f"A rule of the setting RULES cannot be used. {error}")
    for name, row in rows.items():
        for field, text in find_problems(row.spec()).items():
            faults += 1
            yield Finding("error", f"policy {name}", f"The policy is not valid. {field}: {text}")
    try:
        recent = {name: summed(stats.minutes(name)[-MINUTES:]) for name in stats.names()}
    except SharedDictError as error:
        yield Finding("error", f"store {conf.limits.store}", f"The store does not answer: {error}")
        return
    for name, totals in recent.items():
        if totals.failed:
            faults += 1
            yield Finding("warning", f"limit {name}", _without(totals))
    if not faults:
        count = len(rows.keys() | declared.keys())
        yield Finding("ok", "limits", f"{_policies(count)} valid; all decisions used the store.")


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"


def _without(totals: Totals) -> str:
    return f"In the last {MINUTES} minutes, {totals.failed:,} decisions were made without the store."
