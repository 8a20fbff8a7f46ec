"""Policies as values: what is wrong with them is told by field, in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from resty_django.limits.spec import (
    ALGORITHMS,
    BadPolicy,
    PolicySpec,
    build,
    describe,
    find_problems,
    from_values,
    state_prefix,
)

GOOD: dict[str, dict[str, Any]] = {
    "leaky_bucket": {"rate": "200/s", "burst": 100},
    "fixed_window": {"limit": 5000, "window": "1h"},
    "sliding_window": {"limit": 10, "window": "1min"},
    "token_bucket": {"interval": "500ms", "capacity": 3, "max_wait": "700ms"},
    "concurrency": {"limit": 100, "burst": 20},
}


def values(algorithm: str = "leaky_bucket", **changes: Any) -> dict[str, Any]:
    found = {"name": "p", "algorithm": algorithm, **GOOD.get(algorithm, {}), **changes}
    return {name: value for name, value in found.items() if value != "(away)"}


def problems(**changes: Any) -> dict[str, str]:
    with pytest.raises(BadPolicy) as caught:
        from_values(values(**changes))
    return caught.value.problems


def test_each_algorithm_becomes_its_limiter() -> None:
    made = {name: build(from_values(values(name))) for name in ALGORITHMS}
    leaky, fixed, sliding = made["leaky_bucket"], made["fixed_window"], made["sliding_window"]
    tokens, slots = made["token_bucket"], made["concurrency"]
    assert isinstance(leaky, LeakyBucket)
    assert (leaky.rate, leaky.burst) == (200, 100)
    assert isinstance(fixed, FixedWindow)
    assert (fixed.limit, fixed.window) == (5000, 3600)
    assert isinstance(sliding, SlidingWindow)
    assert (sliding.limit, sliding.window) == (10, 60)
    assert isinstance(tokens, TokenBucket)
    assert (tokens.interval, tokens.capacity, tokens.quantum, tokens.max_wait) == (500, 3, 1, 700)
    assert isinstance(slots, Concurrency)
    assert (slots.max, slots.burst, slots.lease) == (100, 20, Concurrency(1).lease)


def test_a_lease_may_be_without_end_and_a_wait_too() -> None:
    slots = build(from_values(values("concurrency", lease="none")))
    assert isinstance(slots, Concurrency)
    assert slots.lease is None
    tokens = build(from_values(values("token_bucket", max_wait="")))
    assert isinstance(tokens, TokenBucket)
    assert tokens.max_wait is None


def test_words() -> None:
    assert describe(from_values(values())) == "200 requests/s, up to 100 wait, then refused"
    for name in ALGORITHMS:
        assert "request" in describe(from_values(values(name)))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"name": ""}, "name", "begins with a letter or digit"),
        ({"name": "a b"}, "name", "begins with a letter or digit"),
        ({"name": "<b>"}, "name", "begins with a letter or digit"),
        ({"name": "a" * 65}, "name", "at most 64"),
        ({"algorithm": "magic"}, "algorithm", "one of leaky_bucket"),
        ({"rate": "(away)"}, "rate", "Leaky bucket needs this"),
        ({"rate": "fast"}, "rate", "is not a rate"),
        ({"rate": "0/s"}, "rate", "greater than 0"),
        ({"rate": "9999999999/s"}, "rate", "at most 1,000,000,000"),
        ({"rate": 200}, "rate", "This is a text, not a number."),
        ({"burst": -1}, "burst", "from 0"),
        ({"burst": float("nan")}, "burst", "from 0"),
        ({"burst": float("inf")}, "burst", "from 0"),
        ({"burst": "many"}, "burst", "This is a number, not a text."),
        ({"window": "1h"}, "window", "Leaky bucket has no such number. Empty this, or choose another algorithm."),
        ({"limit": 0}, "limit", "no such number"),
        ({"key": "ipp"}, "key", 'Did you mean "ip"?'),
        ({"key": "os.system"}, "key", "not a key"),
        ({"path": "api/*"}, "path", "A path begins with /"),
        ({"route": "a b"}, "route", "no spaces"),
        ({"methods": "GET FETCH"}, "methods", "“FETCH” is not a method"),
        ({"methods": ["GET", 1]}, "methods", "This is a text, not a list."),
        ({"cost": 0}, "cost", "from 1"),
        ({"cost": 1.5}, "cost", "This is a whole number, not a fraction."),
        ({"cost": True}, "cost", "not true or false"),
        ({"cost": None}, "cost", "not nothing"),
        ({"mode": "on"}, "mode", "enforce, shadow, off"),
        ({"on_error": "raise"}, "on_error", "open, closed, local"),
        ({"status": 200}, "status", "from 400 to 599"),
        ({"order": 2**40}, "order", "32 bits"),
        ({"rates": "1/s"}, "rates", 'Did you mean "rate"?'),
        ({"zzz": 1}, "zzz", "It has name, algorithm"),
    ],
)
def test_mistakes_are_told_at_their_field(changes: dict[str, Any], field: str, words: str) -> None:
    found = problems(**changes)
    assert list(found) == [field]
    assert words in found[field]


@pytest.mark.parametrize(
    ("algorithm", "changes", "field"),
    [
        ("fixed_window", {"limit": 0}, "limit"),
        ("fixed_window", {"window": "0s"}, "window"),
        ("fixed_window", {"window": "10 parsecs"}, "window"),
        ("fixed_window", {"window": "900w"}, "window"),
        ("sliding_window", {"window": "(away)"}, "window"),
        ("token_bucket", {"capacity": -1}, "capacity"),
        ("token_bucket", {"quantum": 0}, "quantum"),
        ("token_bucket", {"interval": ""}, "interval"),
        ("token_bucket", {"max_wait": "later"}, "max_wait"),
        ("concurrency", {"burst": 0.5}, "burst"),
        ("concurrency", {"lease": "never"}, "lease"),
        ("concurrency", {"default_delay": "0s"}, "default_delay"),
    ],
)
def test_mistakes_in_numbers(algorithm: str, changes: dict[str, Any], field: str) -> None:
    assert list(problems(algorithm=algorithm, **changes)) == [field]


def test_all_mistakes_are_told_at_once() -> None:
    assert set(problems(rate="", key="?", mode="?")) == {"rate", "key", "mode"}


def test_numbers_keep_the_state_and_algorithms_do_not() -> None:
    one = from_values(values())
    assert state_prefix(one) == state_prefix(from_values(values(rate="1/s", burst=0)))
    assert state_prefix(one) != state_prefix(from_values(values("fixed_window")))
    assert state_prefix(one) != state_prefix(from_values(values(name="q")))


def test_a_good_policy_has_no_problems() -> None:
    for name in ALGORITHMS:
        assert find_problems(PolicySpec(**values(name))) == {}
