"""The report of `resty_check` on limits."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django import health
from resty_django.limits import Decision
from resty_django.limits.models import LimitOverride, LimitPolicy
from resty_django.limits.statistics import reporter
from resty_django.shdict import shdicts
from tests.integration.limits.policy_tools import make_policy
from tests.integration.limits.view_tools import change

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.usefixtures("limits_site"),
]


def findings() -> list[tuple[str, str, str]]:
    return [(finding.level, finding.subject, finding.message) for _, finding in health.run(["limits"])]


def test_nothing_is_reported_for_a_healthy_site() -> None:
    make_policy()
    reporter.stats.record("pay", "k", Decision(True))
    reporter.stats.flush()
    assert findings() == [("ok", "limits", "1 policy valid; all decisions used the store.")]


def test_declared_policies_are_counted_once(settings: Any) -> None:
    rules = [{"name": name, "algorithm": "fixed_window", "limit": 1, "window": "1h"} for name in ("one", "two")]
    change(settings, RULES=rules)
    LimitPolicy.objects.create(name="two", algorithm="fixed_window", limit=2, window="1h")
    assert findings() == [("ok", "limits", "2 policies valid; all decisions used the store.")]


def test_a_wrong_rule_of_the_settings_is_an_error(settings: Any) -> None:
    change(settings, RULES=[{"name": "one", "algorithm": "luck"}])
    [(level, subject, message)] = findings()
    assert (level, subject) == ("error", "limits")
    assert message.startswith("A rule of the setting RULES cannot be used. ")


def test_a_wrong_policy_is_reported() -> None:
    make_policy()
    LimitPolicy.objects.update(window="soon")
    [(level, subject, message)] = findings()
    assert (level, subject) == ("error", "policy pay")
    assert message.startswith("The policy is not valid. window: ")


def test_a_wrong_override_is_reported() -> None:
    LimitOverride.objects.create(kind="network", key="192.0.2.0/99", rate="none")
    [(level, subject, message)] = findings()
    assert (level, subject) == ("error", "overrides")
    assert message.startswith("The override “network 192.0.2.0/99 in all limits” is not valid. key: ")
    make_policy()
    LimitOverride.objects.update(kind="user", key="7", limit="pay", rate="1.5/s")
    [(level, subject, message)] = findings()
    assert message.startswith("The override “user 7 in pay” is not valid. rate: '1.5/s' is not a whole number")


def test_decisions_without_the_store_are_reported_after_it_answers_again() -> None:
    for _ in range(3):
        reporter.stats.record("pay", "k", Decision(True, failed=True))
    reporter.stats.flush()
    assert findings() == [("warning", "limit pay", "In the last 10 minutes, 3 decisions were made without the store.")]


@pytest.mark.parametrize(("most", "level"), [(2, "warning"), (3, "ok"), (0, "ok")])
def test_a_limit_that_refuses_many_requests_in_a_minute_is_named(settings: Any, most: int, level: str) -> None:
    change(settings, REFUSALS_WARNING=most)
    for name in ("pay", "ban:pay"):
        for decision in (*[Decision(False)] * 3, *[Decision(True)] * 5):
            reporter.stats.record(name, "k", decision)
    reporter.stats.record("pay", "k", Decision(False), shadow=True)
    reporter.stats.flush()
    [(reported_level, subject, message)] = findings()
    assert reported_level == level
    if level == "warning":
        assert subject == "limit pay"
        assert message.startswith("In one of the last 10 minutes, it refused 3 requests. ")


def test_refusals_of_different_minutes_are_not_added(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    change(settings, REFUSALS_WARNING=2)
    now = time.time()
    figures = reporter.StatsReporter(lambda: shdicts["limits"], lambda: now)
    monkeypatch.setattr("resty_django.limits.facts.stats", figures)
    for count in (3, 2, 2):
        for _ in range(count):
            figures.record("pay", "k", Decision(False))
        figures.flush()
        now += 8 * 60
    assert [level for level, _subject, _message in findings()] == ["ok"]


def test_a_store_that_does_not_answer_is_reported(settings: Any) -> None:
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"limits": {"PATH": "/proc/nowhere"}}}
    [(level, subject, _)] = findings()
    assert (level, subject) == ("error", "store limits")
