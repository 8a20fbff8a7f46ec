"""Policies as values, and the messages about wrong fields."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from resty_django.limits.specs.policy import ALGORITHMS, PolicySpec, build, describe, rate_specs, state_prefix
from resty_django.limits.specs.policy_validation import BadPolicy, find_problems, from_values

GOOD: dict[str, dict[str, Any]] = {
    "leaky_bucket": {"rate": "200/s", "burst": 100},
    "fixed_window": {"limit": 5000, "window": "1h"},
    "sliding_window": {"limit": 10, "window": "1min"},
    "token_bucket": {"interval": "500ms", "capacity": 3, "max_wait": "700ms"},
    "concurrency": {"limit": 100, "burst": 20},
}


def values(algorithm: str = "leaky_bucket", **changes: Any) -> dict[str, Any]:
    fields = {"name": "p", "algorithm": algorithm, **GOOD.get(algorithm, {}), **changes}
    return {name: value for name, value in fields.items() if value != "(away)"}


def problems(**changes: Any) -> dict[str, str]:
    with pytest.raises(BadPolicy) as caught:
        from_values(values(**changes))
    return caught.value.problems


def test_each_algorithm_becomes_its_limiter() -> None:
    limiters = {name: build(from_values(values(name))) for name in ALGORITHMS}
    leaky, fixed, sliding = limiters["leaky_bucket"], limiters["fixed_window"], limiters["sliding_window"]
    tokens, slots = limiters["token_bucket"], limiters["concurrency"]
    assert isinstance(leaky, LeakyBucket)
    assert (leaky.rate, leaky.burst) == (200, 100)
    assert isinstance(fixed, FixedWindow)
    assert (fixed.limit, fixed.window) == (5000, 3600)
    assert isinstance(sliding, SlidingWindow)
    assert (sliding.limit, sliding.window) == (10, 60)
    assert isinstance(tokens, TokenBucket)
    assert (tokens.interval_ms, tokens.capacity, tokens.quantum, tokens.max_wait) == (500, 3, 1, 0.7)
    assert isinstance(slots, Concurrency)
    assert (slots.max, slots.burst, slots.lease) == (100, 20, Concurrency(1).lease)


@pytest.mark.parametrize("text", ["unlimited", "none", "inf", "forever", "-1s", "1e999s", "9999d", "NaN", "None", "∞"])
def test_no_policy_lets_requests_wait_without_a_bound(text: str) -> None:
    with pytest.raises(BadPolicy) as error:
        from_values(values("token_bucket", max_wait=text))
    assert set(error.value.problems) == {"max_wait"}


def test_a_token_bucket_takes_a_rate_instead_of_an_interval() -> None:
    bucket = build(from_values({"name": "p", "algorithm": "token_bucket", "rate": "10/s", "capacity": 50}))
    assert isinstance(bucket, TokenBucket)
    assert (bucket.interval_ms, bucket.capacity, bucket.quantum) == (100, 50, 1)
    bucket = build(from_values({"name": "p", "algorithm": "token_bucket", "rate": "10/s"}))
    assert isinstance(bucket, TokenBucket)
    assert bucket.capacity == 10
    both = {"rate": "10/s", "interval": "1s", "quantum": 2}
    with pytest.raises(BadPolicy) as error:
        from_values({"name": "p", "algorithm": "token_bucket", **both})
    assert set(error.value.problems) == {"interval", "quantum"}
    with pytest.raises(BadPolicy) as error:
        from_values({"name": "p", "algorithm": "token_bucket"})
    assert set(error.value.problems) == {"interval", "capacity"}


def test_a_policy_without_a_lease_or_a_wait_uses_none_and_the_setting() -> None:
    slots = build(from_values(values("concurrency", lease="none")))
    assert isinstance(slots, Concurrency)
    assert slots.lease is None
    tokens = build(from_values(values("token_bucket", max_wait="")))
    assert isinstance(tokens, TokenBucket)
    assert tokens.config.max_wait == 1000
    with override_settings(RESTY_DJANGO={"LIMITS": {"MAX_WAIT": 0.25}}):
        assert tokens.config.max_wait == 250
        assert tokens.describe().endswith("refused if the wait would exceed 250 ms")
    assert tokens.config.max_wait == 1000


@pytest.mark.parametrize(
    ("algorithm", "numbers", "cost", "field"),
    [
        ("fixed_window", {"limit": 5}, 6, "cost"),
        ("sliding_window", {"limit": 5}, 6, "cost"),
        ("concurrency", {"limit": 3, "burst": 2}, 6, "cost"),
        ("token_bucket", {"capacity": 5, "max_wait": "0s"}, 6, "cost"),
        ("fixed_window", {"limit": None, "window": "", "rate": "9/h;5/m"}, 6, "cost"),
        ("token_bucket", {"capacity": 0, "max_wait": "0s"}, 1, "capacity"),
    ],
)
def test_a_policy_that_never_lets_a_request_pass_is_refused(
    algorithm: str, numbers: dict[str, Any], cost: int, field: str
) -> None:
    with pytest.raises(BadPolicy) as error:
        from_values(values(algorithm, **numbers, cost=cost))
    assert set(error.value.problems) == {field}
    assert "can never pass" in error.value.problems[field]
    if cost > 1:
        from_values(values(algorithm, **numbers, cost=cost - 1))


def test_words() -> None:
    assert describe(from_values(values())) == "200 requests/s, up to 100 wait, then refused"
    several = describe(from_values(values(rate="10/s;1000/h burst=5")))
    assert several == "10 requests/s, up to 100 wait, then refused and 1,000 requests/h, up to 5 wait, then refused"
    for name in ALGORITHMS:
        assert "request" in describe(from_values(values(name)))


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"name": ""}, "name", "begin with a letter or digit"),
        ({"name": "a b"}, "name", "begin with a letter or digit"),
        ({"name": "<b>"}, "name", "begin with a letter or digit"),
        ({"name": "a" * 65}, "name", "at most 64"),
        ({"algorithm": "magic"}, "algorithm", "one of leaky_bucket"),
        ({"rate": "(away)"}, "rate", "Leaky bucket requires this field"),
        ({"rate": "fast"}, "rate", "is not a rate"),
        ({"rate": "0/s"}, "rate", "greater than 0"),
        ({"rate": "10/s;"}, "rate", "contains an empty rate"),
        ({"rate": "10/s;none"}, "rate", "'none' is not a rate such as"),
        ({"rate": "none"}, "rate", "'none' is not a rate such as"),
        ({"rate": "10/s;9999999999/s"}, "rate", "“9999999999/s”: This must be more than 0 and at most 1,000,000,000"),
        ({"rate": "10/s;10/s capacity=5"}, "rate", "this limit has no capacity=. Use burst=."),
        ({"rate": "10/s burst=9999999999;1/s"}, "rate", "“10/s burst=9999999999”: This must be from 0 to"),
        ({"rate": ";".join(["10/s"] * 41)}, "rate", "at most 200 characters"),
        ({"rate": "9999999999/s"}, "rate", "at most 1,000,000,000"),
        ({"rate": 200}, "rate", "This must be a string, not a number."),
        ({"burst": -1}, "burst", "from 0"),
        ({"burst": float("nan")}, "burst", "from 0"),
        ({"burst": float("inf")}, "burst", "from 0"),
        ({"burst": "many"}, "burst", "This must be a number, not a string."),
        ({"window": "1h"}, "window", "Leaky bucket does not use this field. Clear it, or choose another algorithm."),
        ({"limit": 0}, "limit", "does not use this field"),
        ({"key": "ipp"}, "key", 'Did you mean "ip"?'),
        ({"key": "os.system"}, "key", "not a key"),
        ({"path": "api/*"}, "path", "A path must begin with /"),
        ({"route": "a b"}, "route", "not contain spaces"),
        ({"methods": "GET FETCH"}, "methods", "“FETCH” is not a method"),
        ({"methods": ["GET", 1]}, "methods", "This must be a string, not a list."),
        ({"cost": 0}, "cost", "from 1"),
        ({"cost": 1.5}, "cost", "This must be a whole number, not a fraction."),
        ({"cost": True}, "cost", "not true or false"),
        ({"cost": None}, "cost", "not nothing"),
        ({"mode": "on"}, "mode", "enforce, shadow, off"),
        ({"on_error": "raise"}, "on_error", "open, closed, local"),
        ({"status": 200}, "status", "from 400 to 599"),
        ({"order": 2**40}, "order", "32 bits"),
        ({"rates": "1/s"}, "rates", 'Did you mean "rate"?'),
        ({"zzz": 1}, "zzz", "Use name, algorithm"),
    ],
)
def test_a_mistake_is_reported_at_its_field(changes: dict[str, Any], field: str, message: str) -> None:
    by_field = problems(**changes)
    assert list(by_field) == [field]
    assert message in by_field[field]


@pytest.mark.parametrize(
    ("algorithm", "changes", "field"),
    [
        ("fixed_window", {"limit": 0}, "limit"),
        ("fixed_window", {"window": "0s"}, "window"),
        ("fixed_window", {"window": "10 parsecs"}, "window"),
        ("fixed_window", {"window": "900w"}, "window"),
        ("sliding_window", {"window": "(away)"}, "window"),
        ("sliding_window", {"limit": "(away)", "window": "(away)", "rate": "10/s;2.5/h"}, "rate"),
        ("fixed_window", {"limit": "(away)", "window": "(away)", "rate": "10/s;5/400d"}, "rate"),
        ("fixed_window", {"limit": "(away)", "window": "(away)", "rate": "10/s burst=5"}, "rate"),
        ("fixed_window", {"limit": "(away)", "rate": "10/s;5/h"}, "window"),
        ("fixed_window", {"window": "(away)", "rate": "10/s"}, "limit"),
        ("token_bucket", {"capacity": "(away)", "rate": "10/s;5/h"}, "interval"),
        ("concurrency", {"rate": "10/s"}, "rate"),
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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tiers": "pro: 4/h\nfree 2/h"}, "Line 2, “free 2/h”: Write a tier, a colon and its rate: pro: 600/m"),
        ({"tiers": "pro:"}, "Line 1, “pro:”: Write a tier"),
        ({"tiers": ": 4/h"}, "Line 1, “: 4/h”: Write a tier"),
        ({"tiers": "\n\npro: fast"}, "Line 3, “pro: fast”: 'fast' is not a rate such as"),
        ({"tiers": "pro: 4/h\npro: 5/h"}, "Line 2, “pro: 5/h”: An earlier line is for the same tier."),
        ({"tiers": f"{'p' * 65}: 4/h"}, "The name of the tier is too long. Use at most 64 characters."),
        ({"tiers": "pro: 4.5/h"}, "is not a whole number of requests"),
        ({"tiers": "pro: 4/h burst=3"}, "this limit has no burst="),
        ({"tiers": "pro: 4/900d"}, "Line 1, “pro: 4/900d”: This must be from 1ms to 366d."),
        ({"tiers": "pro: 1/h", "cost": 2}, "can never pass this limit"),
        ({"tiers": "pro: 4/h;"}, "contains an empty rate"),
        ({"tiers": "\n".join(f"t{number}: 4/h" for number in range(201))}, "This has 201 lines. Use at most 200."),
        ({"tiers": f"pro: {'4' * 200}/h"}, "Line 1 is too long. Use at most 200 characters."),
        ({"tiers": "a\nb\nc\nd\ne\nf\ng"}, "2 more lines are wrong."),
        ({"exempt_networks": "10.0.0.0/8\nhome"}, "Line 2, “home”: This is not a network. Write 10.0.0.0/8"),
        ({"exempt_paths": "/a\nb c"}, "Line 2, “b c”: This must not contain spaces."),
        ({"exempt_paths": "api"}, "Line 1, “api”: A path must begin with / or *. Write /api"),
        ({"ban": "soon"}, "'soon' is not a duration"),
        ({"ban": "400d"}, "This must be from 1ms to 366d."),
        ({"ban": "15m", "ban_after": 0}, "This must be from 1 to 1,000,000,000."),
        ({"ban_after": 3}, "This needs a length of the ban. Set it, or clear this field."),
        ({"exempt_users": "user:"}, "The primary key is missing. Write user:7."),
    ],
)
def test_a_mistake_names_its_line(fields: dict[str, Any], message: str) -> None:
    ((field, text),) = find_problems(PolicySpec(**values("fixed_window", **fields))).items()
    assert field in fields
    assert message in text


def test_wrong_tiers_are_reported_with_other_mistakes() -> None:
    spec = PolicySpec(name="api", algorithm="leaky_bucket", rate="fast", tiers="pro: 1/h\nfree")
    problems = find_problems(spec)
    assert sorted(problems) == ["rate", "tiers"]
    assert problems["tiers"].startswith("Line 2, “free”")
    assert "tiers" in find_problems(PolicySpec(name="a", algorithm="concurrency", limit=1, tiers="pro: 1/h"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tiers": {"pro": 5}}, "tiers: Line 1, “pro: 5”: '5' is not a rate"),
        ({"tiers": ["pro: 5/s"]}, "tiers: This must be an object such as"),
        ({"tiers": {"a: 1/s\nb": "1/s"}}, "tiers: This must be an object such as"),
        ({"exempt_users": {"a": "b"}}, "exempt_users: This must be a list of strings, not an object."),
        ({"exempt_users": [7]}, "exempt_users: This must be a list of strings, not a list."),
        ({"burst": "3"}, "burst: This must be a number, not a string."),
        ({"cost": True}, "cost: This must be a whole number, not true or false."),
        ({"path": None}, "path: This must be a string, not nothing."),
        ({"bursts": 3}, 'bursts: A policy has no such field. Did you mean "burst"'),
    ],
)
def test_declarations_of_a_wrong_type_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPolicy, match=message):
        from_values({"name": "api", "algorithm": "leaky_bucket", "rate": "1/s", **values})


def test_all_mistakes_are_reported_at_once() -> None:
    assert set(problems(rate="", key="?", mode="?")) == {"rate", "key", "mode"}


@pytest.mark.parametrize(
    ("algorithm", "rate", "numbers"),
    [
        ("leaky_bucket", "10/s;1000/h burst=5", [(10, 7), (1000 / 3600, 5)]),
        ("fixed_window", "10/s;1000/h", [(10, 1), (1000, 3600)]),
        ("sliding_window", "1000/h", [(1000, 3600)]),
        ("token_bucket", "10/s;60/m capacity=5", [(100, 9), (1000, 5)]),
    ],
)
def test_a_rate_can_be_several(algorithm: str, rate: str, numbers: list[tuple[float, ...]]) -> None:
    own = {"leaky_bucket": {"burst": 7}, "token_bucket": {"capacity": 9}}.get(algorithm, {})
    spec = from_values({"name": "p", "algorithm": algorithm, "rate": rate, **own})
    names = {"leaky_bucket": ("rate", "burst"), "token_bucket": ("interval_ms", "capacity")}
    limiters = [build(one) for one in rate_specs(spec)]
    attributes = names.get(algorithm, ("limit", "window"))
    assert [tuple(getattr(limiter, name) for name in attributes) for limiter in limiters] == numbers


def test_numbers_keep_the_state_and_algorithms_do_not() -> None:
    spec = from_values(values())
    assert state_prefix(spec) == state_prefix(from_values(values(rate="1/s", burst=0)))
    assert state_prefix(spec) != state_prefix(from_values(values("fixed_window")))
    assert state_prefix(spec) != state_prefix(from_values(values(name="q")))


def test_a_good_policy_has_no_problems() -> None:
    for name in ALGORITHMS:
        assert find_problems(PolicySpec(**values(name))) == {}
