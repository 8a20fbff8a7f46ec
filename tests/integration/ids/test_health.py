"""Findings of `resty_check` about rules and counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test.utils import override_settings
from django.utils import timezone

from resty_django import health
from resty_django.ids import next_id, stop
from resty_django.ids.engine.cycle import DAY_SECONDS
from resty_django.ids.health import probe
from resty_django.ids.models import IdCounter, IdRule

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]


def findings() -> list[tuple[str, str, str]]:
    return [(finding.level, finding.subject, finding.message) for finding in probe()]


def take(count: int, app: str = "") -> None:
    for _ in range(count):
        next_id("order", app)
    stop()


def test_the_probe_is_registered() -> None:
    assert "ids" in health.names()


def test_healthy_rules_yield_one_ok_finding(order: IdRule) -> None:
    take(5)
    assert findings() == [("ok", "ids", "1 rules compile; no counter is near exhaustion.")]


def test_every_broken_rule_is_named(order: IdRule, make_rule: MakeRule) -> None:
    take(1)
    make_rule("other")
    IdRule.objects.filter(name="order").update(scramble_key="no", reset_calendar="aeon")
    IdRule.objects.filter(name="other").update(source="{x}", timezone="Mars/Base")
    make_rule("third")
    IdRule.objects.filter(name="third").update(kind="python", source="no.Where")
    reported = findings()
    assert {(level, subject) for level, subject, _ in reported} == {
        ("error", "rule order"),
        ("error", "rule other"),
        ("error", "rule third"),
    }


def test_a_disabled_rule_is_skipped(order: IdRule) -> None:
    take(1)
    IdRule.objects.update(source="{x}", enabled=False)
    assert findings()[0][0] == "ok"


@pytest.mark.parametrize(
    ("count", "level", "sentence"), [(85, "ok", "near"), (92, "warning", "92%"), (100, "error", "All numbers")]
)
def test_a_counter_near_its_end_is_named(make_rule: MakeRule, count: int, level: str, sentence: str) -> None:
    make_rule(max_counter=99, segment_size=1)
    take(count, "shop")
    [(reported_level, subject, message)] = findings()
    assert (reported_level, subject) == (level, "ids" if level == "ok" else "counter order/shop")
    assert sentence in message


def test_a_cycle_that_has_passed_is_not_near_its_end(make_rule: MakeRule) -> None:
    make_rule(source="{now:%y%m%d}{counter:03d}", max_counter=99, reset_seconds=DAY_SECONDS, segment_size=1)
    take(100)
    assert findings()[0][0] == "error"
    IdCounter.objects.update(cycle_start=0, cycle_end=DAY_SECONDS, shown=5)
    assert findings()[0][0] == "ok"


def test_shown_time_ahead_of_the_clock_is_named(make_rule: MakeRule) -> None:
    make_rule(timezone="UTC")
    take(1)
    IdCounter.objects.update(shown=int(time.time()) + 3600)
    [(level, subject, message)] = findings()
    assert (level, subject) == ("warning", "counter order/")
    assert "ahead of this clock" in message


@pytest.mark.parametrize(("warning", "level"), [("11h", "warning"), ("9h", "ok"), (0, "ok")])
def test_a_rule_whose_numbers_run_out_soon_is_named(make_rule: MakeRule, warning: str | int, level: str) -> None:
    make_rule(max_counter=999_999, segment_size=100_000)
    take(1)
    hour_ago = timezone.now() - timedelta(hours=1, seconds=1)
    IdCounter.objects.update(window_began=hour_ago, window_issued=90_909, bound=90_909)
    with override_settings(RESTY_DJANGO={"IDS": {"RUNS_OUT_WARNING": warning}}):
        [(reported_level, subject, message)] = findings()
    assert reported_level == level
    if level == "warning":
        assert subject == "rule order"
        assert (
            message == "At the present pace, its numbers run out in 10.0 h, before the cycle ends. Raise its maximum."
        )


def test_a_counter_that_is_used_up_is_reported_once(make_rule: MakeRule) -> None:
    make_rule(max_counter=99, segment_size=1)
    take(100, "shop")
    IdCounter.objects.update(window_began=timezone.now() - timedelta(hours=1, seconds=1))
    assert [level for level, _subject, _message in findings()] == ["error"]


def test_a_counter_of_another_step_is_named(order: IdRule) -> None:
    take(1)
    with override_settings(RESTY_DJANGO={"IDS": {"STEP": 2}}):
        [(level, _, message)] = findings()
    assert level == "error"
    assert "Confirm the step" in message
