"""What `manage.py resty_check` says of limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from resty_django import health
from resty_django.conf import conf
from resty_django.health import Finding
from resty_django.shdict import SharedDictError

from .exchange import stored
from .spec import find_problems
from .stats import Totals, stats, summed

MINUTES: Final = 10
"""Decisions that the store had no part in are reported for so long."""


def register() -> None:
    """Register the probe `limits`."""
    health.register("limits", probe)


def probe() -> Iterator[Finding]:
    """Policies that cannot be used, and decisions that any process made while the store was down."""
    faults = 0
    rows = stored()
    for name, row in rows.items():
        for field, text in find_problems(row.spec()).items():
            faults += 1
            yield Finding("error", f"policy {name}", f"It cannot be used. {field}: {text}")
    try:
        recent = {name: summed(stats.minutes(name)[-MINUTES:]) for name in stats.names()}
    except SharedDictError as error:
        yield Finding("error", f"store {conf.limits.store}", f"It does not answer: {error}")
        return
    for name, totals in recent.items():
        if totals.failed:
            faults += 1
            yield Finding("warning", f"limit {name}", _without(totals))
    if not faults:
        yield Finding("ok", "limits", f"{_policies(len(rows))} can be used; the store had a part in all decisions.")


def _policies(count: int) -> str:
    return "1 policy" if count == 1 else f"{count} policies"


def _without(totals: Totals) -> str:
    return f"In the last {MINUTES} minutes {totals.failed:,} decisions were made without the store."
