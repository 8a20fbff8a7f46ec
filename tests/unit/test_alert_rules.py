"""Rules of alerts and the states of incidents, without a store and with a clock of the test."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.alerts.incidents import CLAIM, MOST_PAST, State, claim, evaluate, finish
from resty_django.alerts.readings import Reading, read
from resty_django.alerts.rules import KINDS, BadRule, Rule, parse_rule, parse_rules
from resty_django.metrics import Family, Sample

LATENCY = parse_rule({"kind": "latency", "above": "5m", "for": "2m"})
FAILURES = parse_rule({"kind": "failures", "above": 10})


def step(
    state: State, rule: Rule, values: dict[str, float] | None, now: float, *, counter: bool = False, **options: Any
) -> State:
    readings = {} if values is None else {rule.name: Reading(values, counter)}
    return evaluate(state, [rule], readings, now, options.get("channels", ["mail"]))


def sent(state: State) -> list[tuple[str, str]]:
    return [(notice.state, notice.subject) for message in state.messages for notice in message.notices]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either `kind` or `metric`"),
        ({"kind": "latency", "metric": "a"}, "either `kind` or `metric`"),
        ({"kind": "latancy"}, 'Did you mean "latency"'),
        ({"kind": "latency", "abov": 3}, 'Did you mean "above"'),
        ({"kind": "latency", "above": "soon"}, "`above` is not valid"),
        ({"kind": "failures", "above": "3"}, "`above` must be a number"),
        ({"kind": "failures", "above": True}, "`above` must be a number"),
        ({"kind": "failures", "above": 3, "below": 1}, "both"),
        ({"kind": "failures", "for": "x"}, "`for` is not valid"),
        ({"kind": "failures", "queue": 3}, "labels must be strings"),
        ({"kind": "headroom", "queue": "mail"}, "'queue' is unknown"),
        ({"kind": "failures", "name": " "}, "`name` must be a text"),
        ({"metric": "shop_orders"}, "`above` or `below`"),
        ({"metric": "shop_orders", "above": 3, "labels": "a"}, "`labels` must be a dict"),
        ({"metric": 3, "above": 3}, "`metric` must be the name"),
    ],
)
def test_wrong_rules_are_explained(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRule) as raised:
        parse_rules([{"kind": "stalled"}, values])
    assert message in str(raised.value)
    assert str(raised.value).startswith("Rule 2: ")


def test_rules_have_defaults_and_names() -> None:
    for kind in KINDS:
        rule = parse_rule({"kind": kind})
        assert rule.name == kind
        assert rule.duration == 0
    rule = parse_rule({"kind": "latency", "queue": "mail", "above": "10m", "for": "1h"})
    assert (rule.name, rule.threshold, rule.is_above, rule.duration) == ("latency mail", 600, True, 3600)
    assert not parse_rule({"kind": "headroom"}).is_above
    with pytest.raises(BadRule, match="another rule has the name 'latency'"):
        parse_rules([{"kind": "latency"}, {"kind": "latency", "above": 3}])


def test_readings_come_from_metrics() -> None:
    states = [Sample(("a", "stalled"), 2), Sample(("a", "waiting"), 5)]
    orders = [Sample(("Berlin", "new"), 7), Sample(("Wien", "new"), 1)]
    families = [
        Family("resty_jobs", "gauge", "", ("queue", "state"), states),
        Family("resty_jobs_latency_seconds", "gauge", "", ("queue",), [Sample(("a",), 9), Sample(("b",), 8)]),
        Family("resty_jobs_queue_paused", "gauge", "", ("queue",), [Sample(("a",), 1), Sample(("b",), 0)]),
        Family("shop_orders", "counter", "", ("city", "kind"), orders),
    ]
    rules = parse_rules(
        [
            {"kind": "stalled"},
            {"kind": "stalled", "queue": "a"},
            {"kind": "stalled", "queue": "b", "name": "none"},
            {"kind": "latency"},
            {"kind": "headroom"},
            {"metric": "shop_orders_total", "labels": {"city": "Berlin"}, "above": 5},
            {"metric": "shop_orders_total", "labels": {"town": "Wien"}, "above": 5},
        ]
    )
    assert read(rules, families) == {
        "stalled": Reading({"a": 2}),
        "stalled a": Reading({"a": 2}),
        "none": Reading({}),
        "latency": Reading({"b": 8}),  # the queue a is paused
        "shop_orders_total Berlin": Reading({"new": 7}, True),
        "shop_orders_total Wien": Reading({}, True),  # without such a label
    }


def test_an_incident_is_reported_once_after_its_duration_and_once_when_it_ends() -> None:
    state = step(State(), LATENCY, {"mail": 400, "pdf": 10}, 1000)
    assert sent(state) == []
    state = step(state, LATENCY, {"mail": 500, "pdf": 10}, 1119)
    assert sent(state) == []
    for now in (1120, 1150, 1180):
        state = step(state, LATENCY, {"mail": 500, "pdf": 10}, now)
        assert sent(state) == [("firing", "mail")]
    state = step(state, LATENCY, {"mail": 300, "pdf": 10}, 1210)
    assert sent(state) == [("firing", "mail"), ("resolved", "mail")]
    (notice,) = state.messages[1].notices
    assert (notice.since, notice.at, notice.value) == (1000, 1210, 300)
    assert state.active == ()
    (incident,) = state.past
    assert (incident.fired, incident.resolved) == (1120, 1210)
    assert sent(step(state, LATENCY, {"mail": 1}, 1240)) == sent(state)


def test_a_short_condition_is_not_reported() -> None:
    state = step(State(), LATENCY, {"mail": 400}, 1000)
    state = step(state, LATENCY, {"mail": 1}, 1060)
    state = step(state, LATENCY, {"mail": 400}, 1120)
    state = step(state, LATENCY, {"mail": 400}, 1200)
    assert (sent(state), state.past) == ([], ())


def test_a_source_without_figures_neither_begins_nor_ends_an_incident() -> None:
    rule = parse_rule({"kind": "latency"})
    state = step(State(), rule, {"mail": 400}, 1000)
    state = step(state, rule, None, 1030)
    assert [incident.subject for incident in state.active] == ["mail"]
    state = step(state, rule, {}, 1060)  # the queue is gone
    assert sent(state) == [("firing", "mail"), ("resolved", "mail")]
    assert state.messages[1].notices[0].value is None


def test_counters_are_measured_per_minute_also_when_they_restart() -> None:
    state = step(State(), FAILURES, {"mail": 5000}, 1000, counter=True)
    assert state.active == ()  # what was counted before is not known to be new
    state = step(state, FAILURES, {"mail": 5005}, 1030, counter=True)
    assert state.active == ()
    state = step(state, FAILURES, {"mail": 5012}, 1060, counter=True)
    assert [incident.value for incident in state.active] == [12]
    state = step(state, FAILURES, {"mail": 4}, 1090, counter=True)  # midnight: 7 and 4 in the last minute
    assert [incident.value for incident in state.active] == [11]
    state = step(state, FAILURES, {"mail": 4}, 1390, counter=True)
    assert state.active == ()
    state = step(state, FAILURES, {"mail": 4, "new": 30}, 1420, counter=True)
    assert [(incident.subject, incident.value) for incident in state.active] == [("new", 30)]
    for now in range(1450, 3000, 30):
        state = step(state, FAILURES, {"mail": 4, "new": 30}, now, counter=True)
    assert max(len(points) for points in state.points["failures"].values()) <= 4


def test_counters_read_seldom_are_measured_over_that_time() -> None:
    state = step(State(), FAILURES, {"mail": 0}, 0, counter=True)
    state = step(state, FAILURES, {"mail": 60}, 600, counter=True)
    assert state.active == ()
    state = step(state, FAILURES, {"mail": 260}, 1200, counter=True)
    assert [incident.value for incident in state.active] == [20]


def test_removed_rules_end_their_incidents_without_a_message() -> None:
    rule = parse_rule({"kind": "latency"})
    state = step(State(), rule, {"mail": 400}, 1000)
    state = evaluate(state, [], {}, 1030, ["mail"])
    assert sent(state) == [("firing", "mail")]
    assert (state.active, len(state.past)) == ((), 1)


def test_each_channel_has_its_own_messages() -> None:
    rule = parse_rule({"kind": "latency"})
    state = step(State(), rule, {"a": 400, "b": 400}, 1000, channels=["mail", "call"])
    batches = [(message.channel, len(message.notices)) for message in state.messages]
    assert batches == [("mail", 2), ("call", 1), ("call", 1)]
    assert len({message.id for message in state.messages}) == 3


def test_a_message_is_claimed_by_one_process_and_retried_after_an_error() -> None:
    rule = parse_rule({"kind": "latency"})
    state = step(State(), rule, {"a": 400}, 1000)
    state, message = claim(state, 1000)
    assert message is not None
    assert claim(state, 1001)[1] is None
    state = finish(state, message.id, "SMTPException: no", 1010)
    assert claim(state, 1039)[1] is None
    state, again = claim(state, 1040)
    assert again is not None
    assert again.attempts == 2
    assert claim(state, 1040 + CLAIM - 1)[1] is None
    state, third = claim(state, 1040 + CLAIM)  # the process was killed while it sent
    assert third is not None
    state = finish(state, third.id, "", 2000)
    assert (state.messages, claim(state, 9000)[1]) == ((), None)
    assert finish(state, third.id, "late", 2000) == state


def test_the_state_is_bounded() -> None:
    rule = parse_rule({"kind": "latency"})
    state = State()
    for now in range(0, 1200, 2):
        state = step(state, rule, {f"q{n}": 400 for n in range(300)}, now)
        state = step(state, rule, {}, now + 1)
        assert len(state.active) <= 200
    assert len(state.past) == MOST_PAST
    assert len(state.messages) <= 200
