"""Rules, counters and people for the tests of the admin."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from django.utils import timezone

from resty_django.ids.engine.wall_clock import wall_at
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service.stats import series
from resty_django.sansio import run
from tests.staff import signed_in

RULES = "/admin/resty_ids/idrule/"
COUNTERS = "/admin/resty_ids/idcounter/"
HOSTILE = "<b>\"it's\\&{{x}}%s</b>é"
"""A name that no form lets in, but a database may hold."""
LUA = """\
function min_counter() return 0 end
function max_counter() return 999 end
function reset_seconds() return 0 end
function create_id(counter, now, salt) return string.format("L%03d", counter:generate_counter()) end
"""


def make_rule(name: str = "order", **fields: Any) -> IdRule:
    return IdRule.objects.create(
        **{"name": name, "source": "O{now:%y%m%d}{counter:06d}", "reset_seconds": 86_400, "segment_size": 10, **fields}
    )


def add_issued(rule: str, count: int, now: float) -> None:
    """Count IDs of a rule as another process does at `now` (epoch seconds)."""
    run(series(lambda: now).add(rule, (count,)))


def make_counter(rule: IdRule, app: str = "shop", bound: int = 100, **fields: Any) -> IdCounter:
    wall = wall_at(time.time(), rule.spec().zone)
    cycle = rule.spec().reset.cycle(wall)
    return IdCounter.objects.create(
        **{
            "rule": rule,
            "app_name": app,
            "bound": bound,
            "cycle_start": cycle.start,
            "cycle_end": cycle.end,
            "shown": wall,
            "cycle_began": timezone.now(),
            "cycle_first": rule.min_counter,
            "window_began": timezone.now(),
            "window_issued": max(0, bound - rule.min_counter),
            **fields,
        }
    )


person = partial(signed_in, "resty_ids")


def rule_data(rule: IdRule | None = None, **fields: Any) -> dict[str, Any]:
    """Return the fields that a browser sends for a rule's form; a field set to None is left out."""
    data = {
        "name": "order",
        "description": "",
        "enabled": "on",
        "kind": "template",
        "source": "O{now:%y%m%d}{counter:06d}",
        "min_counter": 0,
        "max_counter": 999_999,
        "reset_seconds": 86_400,
        "reset_calendar": "",
        "timezone": "",
        "segment_size": 10,
        "max_names": 10_000,
        "salt_length": "",
        "fixed_length": "on",
        "sample-app": "shop",
        "sample-salt": "",
        "sample-counter": "",
    }
    if rule is not None:
        data |= {name: getattr(rule, name) for name in ("name", "kind", "source", "min_counter", "max_counter")}
    return {name: value for name, value in (data | fields).items() if value is not None}


def rows() -> list[Any]:
    """All that an action may change."""
    return [*IdRule.objects.order_by("pk").values(), *IdCounter.objects.order_by("pk").values()]
