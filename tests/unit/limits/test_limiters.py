"""Limiters on a store in the process: their numbers, costs, setters, words, and wrong arguments."""

from __future__ import annotations

import math
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits import (
    Concurrency,
    Decision,
    FixedWindow,
    LeakyBucket,
    Limited,
    LocalStore,
    NotFound,
    SlidingWindow,
    TokenBucket,
)
from resty_django.limits.algorithms import FRAME
from resty_django.limits.limiters.units import refill_of
from resty_django.shdict import BadKey
from tests.dictionaries import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def options(clock: Clock) -> dict[str, Any]:
    return {"store": LocalStore(clock=clock), "clock": clock}


KINDS: list[Callable[..., Any]] = [
    partial(LeakyBucket, 0.01),
    partial(FixedWindow, 1, 60),
    partial(SlidingWindow, 1, 60),
    partial(TokenBucket.from_interval, 60_000, 1, 1, 0),
    partial(Concurrency, 1),
]
"""Limiters that let one request pass."""


# --- fields of decisions --------------------------------------------------------------------------------------------


def test_leaky_bucket_numbers(options: Any, clock: Clock) -> None:
    limiter = LeakyBucket(2, 3, **options)
    assert limiter.peek("k") == Decision(True, 0.0, 0.0, 4, 4, 0.0)
    assert limiter.hit("k") == Decision(True, 0.0, 0.0, 4, 3, 0.5)
    assert limiter.peek("k") == Decision(True, 0.5, 1.0, 4, 3, 0.5)
    assert limiter.hit("k", 3) == Decision(True, 1.5, 3.0, 4, 0, 2.0)
    assert limiter.peek("k") == limiter.hit("k") == Decision(False, 0.0, None, 4, 0, 2.0, 0.5)
    assert limiter.hit("k", 2) == Decision(False, 0.0, None, 4, 0, 2.0, 1.0)
    clock.advance(0.499)
    assert not limiter.peek("k")
    clock.advance(0.001)
    assert limiter.peek("k").remaining == 1
    assert limiter.peek("k", 2) == Decision(False, 0.0, None, 4, 1, 1.5, 0.5)
    clock.advance(1.499)
    assert limiter.peek("k").state == pytest.approx(0.002)
    clock.advance(0.001)
    assert limiter.peek("k") == Decision(True, 0.0, 0.0, 4, 4, 0.0)


def test_fixed_window_numbers(options: Any, clock: Clock) -> None:
    limiter = FixedWindow(3, 10, **options)
    assert limiter.peek("k") == Decision(True, 0.0, 2, 3, 3, 0.0)
    assert limiter.hit("k") == Decision(True, 0.0, 2, 3, 2, 10.0)
    clock.advance(4)
    assert limiter.peek("k") == Decision(True, 0.0, 1, 3, 2, 6.0)
    assert limiter.peek("k", 3) == Decision(False, 0.0, None, 3, 2, 6.0, 6.0)
    assert limiter.hit("k", 3) == Decision(False, 0.0, None, 3, 0, 6.0, 6.0)
    assert limiter.uncommit("k", 3) == 2
    assert limiter.hit("k", 2) == Decision(True, 0.0, 0, 3, 0, 6.0)


def test_sliding_window_numbers(options: Any, clock: Clock) -> None:
    limiter = SlidingWindow(10, 60, **options)
    clock.milliseconds = 60_000 * 1000  # a window begins
    assert limiter.peek("k") == Decision(True, 0.0, 9, 10, 10, 0.0)
    assert limiter.hit("k", 8) == Decision(True, 0.0, 2, 10, 2, 120.0)
    clock.advance(30)
    assert limiter.hit("k", 3) == Decision(False, 0.0, None, 10, 2, 90.0, 37.5)
    clock.advance(30)  # all 8 of the window before still count
    assert limiter.peek("k", 2) == Decision(True, 0.0, 0, 10, 2, 60.0)
    assert limiter.peek("k", 3) == Decision(False, 0.0, None, 10, 2, 60.0, 7.5)
    clock.advance(15)  # three quarters of them: 6
    assert limiter.hit("k", 4) == Decision(True, 0.0, 0, 10, 0, 105.0)
    assert limiter.hit("k") == Decision(False, 0.0, None, 10, 0, 105.0, 7.5)
    clock.advance(7.499)
    assert not limiter.hit("k")
    clock.advance(0.001)
    assert limiter.hit("k").state == 0
    assert limiter.uncommit("k", 2) == 2
    clock.advance(120)
    assert limiter.peek("k") == Decision(True, 0.0, 9, 10, 10, 0.0)
    assert limiter.uncommit("k") == limiter.uncommit("other") == 10


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 8)), max_size=25))
def test_a_sliding_window_bounds_what_passes_in_any_time(calls: list[tuple[int, int]]) -> None:
    clock = Clock()
    window = SlidingWindow(6, 10, store=LocalStore(clock=clock), clock=clock)
    times: list[int] = []
    for pause, count in [*calls, (0, 6)]:
        clock.milliseconds += pause
        times += [clock.milliseconds] * sum(window.hit("k").allowed for _ in range(count))
    for first, start in enumerate(times):
        for last, end in enumerate(times[first:], first):
            assert end - start > 10_000 or last - first + 1 <= 6 * (1 + (end - start) / 10_000)


def test_concurrency_numbers(options: Any) -> None:
    limiter = Concurrency(2, 1, 0.5, **options)
    first, second = limiter.hit("k"), limiter.hit("k")
    assert first.replace(token="") == Decision(True, 0.0, 1, 3, 2)
    assert len({first.token, second.token, ""}) == 3
    assert limiter.peek("k") == Decision(True, 0.5, 3, 3, 1)
    assert limiter.hit("k", 2) == Decision(False, 0.0, None, 3, 1, 0.0, 0.5)
    assert limiter.hit("j", 3).replace(token="") == Decision(True, 0.5, 3, 3)


def test_token_bucket_numbers(options: Any, clock: Clock) -> None:
    limiter = TokenBucket.from_interval(500, 3, 1, 700, **options)
    assert limiter.peek("k") == Decision(True, 0.0, 2, 3, 3, 0.0)
    assert limiter.hit("k", 2) == Decision(True, 0.0, 1, 3, 1, 1.0)
    assert limiter.take("k", 2, True) == Decision(True, 0.5, -1, 3, 0, 2.0)
    clock.advance(0.1)
    refused = limiter.hit("k")
    assert refused == Decision(False, 0.0, None, 3, 0, 1.9, 0.2)
    clock.advance(0.199)
    assert not limiter.peek("k")
    clock.advance(0.001)
    assert limiter.peek("k").delay == 0.7


# --- slots ---------------------------------------------------------------------------------------------------------


def test_a_token_bucket_reads_states_without_fractions_of_a_millisecond(options: Any, clock: Clock) -> None:
    bucket = TokenBucket.from_interval(1000 / 3, 3, **options)
    state = struct.pack(f"<{FRAME}xqqxx", 0, clock.milliseconds - 1000)
    assert bucket.step(True, 1, state)[2].state == 1
    clock.advance(0.001)
    assert bucket.step(True, 1, state)[2].state == 2


def test_an_ended_lease_releases_its_slot(options: Any, clock: Clock) -> None:
    limiter = Concurrency(2, lease=10, **options)
    first, second = limiter.hit("k"), limiter.hit("k")
    clock.advance(5)
    assert limiter.renew("k", second.token)
    clock.advance(4.999)
    assert not limiter.hit("k")
    clock.advance(0.001)
    third = limiter.hit("k")
    assert third.state == 2
    assert not limiter.renew("k", first.token)
    assert limiter.leaving("k", token=first.token) == 2  # it was given back before
    assert limiter.leaving("k", token=second.token) == 1
    assert limiter.leaving("k", token=second.token) == 1
    assert limiter.leaving("k", token=third.token) == 0


def test_leaving_without_a_token_frees_the_oldest_and_uncommit_the_newest(options: Any) -> None:
    limiter = Concurrency(5, **options)
    tokens = [limiter.hit("k").token for _ in range(4)]
    assert limiter.leaving("k") == 3
    assert limiter.uncommit("k") == 2
    assert [limiter.renew("k", token) for token in tokens] == [False, True, True, False]


def test_many_slots_are_taken_released_and_expire(options: Any, clock: Clock) -> None:
    limiter = Concurrency(100, lease=10, **options)
    tokens = [limiter.hit("k").token for _ in range(100)]
    assert not limiter.hit("k")
    for remaining, token in enumerate(reversed(tokens[10:90])):
        assert limiter.leaving("k", token=token) == 99 - remaining
    clock.advance(10)
    assert limiter.peek("k").state == 1
    assert limiter.hit("k").state == 1


@pytest.mark.parametrize("token", ["x", "0g", "local:zz"])
def test_a_malformed_token_is_refused(token: str, options: Any) -> None:
    with pytest.raises(ValueError, match="token"):
        Concurrency(1, **options).leaving("k", token=token)


def test_a_latency_of_zero_counts(options: Any) -> None:
    limiter = Concurrency(1, 5, 0.5, **options)
    limiter.hit("k")
    limiter.hit("k")
    limiter.leaving("k", 0)
    assert limiter.hit("k").delay == 0.25
    with pytest.raises(NotFound):
        limiter.leaving("j", 9)
    assert limiter.unit_delay == 0.25


# --- options and setters -------------------------------------------------------------------------------------------


def test_a_clamped_clock_stands_still(options: Any, clock: Clock) -> None:
    leaky = LeakyBucket(1, 1, clamp=True, prefix="l:", **options)
    token = TokenBucket.from_interval(1000, 2, 1, 0, clamp=True, prefix="t:", **options)
    for limiter in (leaky, token):
        assert [limiter.hit("k").allowed for _ in range(3)] == [True, True, False]
    clock.advance(-1)
    assert leaky.peek("k").retry_after == token.peek("k").retry_after == 2
    assert not leaky.hit("k")
    assert not token.hit("k")
    clock.advance(1)
    assert not leaky.hit("k")
    assert not token.hit("k")
    clock.advance(1)
    assert leaky.hit("k")
    assert token.hit("k")
    clock.advance(-5)  # beyond what a window takes the next request passes, and notes the time
    for limiter in (leaky, token):
        assert [limiter.hit("k").allowed for _ in range(2)] == [True, False]


def test_setters_act_at_once(options: Any) -> None:
    leaky = LeakyBucket(1, 0, prefix="l:", **options)
    leaky.hit("k")
    assert not leaky.hit("k")
    leaky.set_burst(2)
    assert leaky.hit("k").delay == 1
    leaky.set_rate(10)
    assert leaky.hit("k").delay == 0.2
    window = FixedWindow(1, 10, prefix="f:", **options)
    window.set_limit(3)
    window.set_window(20)
    assert window.hit("k") == Decision(True, 0.0, 2, 3, 2, 20.0)
    sliding = SlidingWindow(1, 10, prefix="s:", **options)
    sliding.set_limit(3)
    sliding.set_window(1)
    assert sliding.hit("k").state == 2
    slots = Concurrency(1, prefix="c:", **options)
    slots.set_conn(2)
    slots.set_burst(1)
    assert [slots.hit("k").allowed for _ in range(4)] == [True, True, True, False]
    token = TokenBucket.from_interval(1000, 0, prefix="t:", **options)
    assert token.hit("k").delay == 1
    token.set_max_wait(0.5)
    assert not token.hit("k")
    token.set_max_wait(None)
    assert token.hit("k").delay == 2


def test_a_setter_that_is_refused_changes_nothing(options: Any) -> None:
    leaky = LeakyBucket(1, 0, **options)
    with pytest.raises(ValueError, match="rate"):
        leaky.set_rate(0)
    assert leaky.rate == 1
    assert leaky.hit("k").delay == 0


def test_prefixes_keep_limiters_apart_and_keys_are_used_as_given(options: Any) -> None:
    plain, first, second = (FixedWindow(1, 10, prefix=prefix, **options) for prefix in ("", "a:", "b:"))
    assert first.hit("k")
    assert second.hit("k")
    assert not first.hit("k")
    assert not plain.hit("a:k")
    assert first.hit(b"\xff")
    assert not first.hit(b"\xff")
    assert first.hit(7)
    assert not first.hit("7")


@pytest.mark.parametrize("first", KINDS)
def test_kinds_of_limiters_share_no_states(options: Any, first: Callable[..., Any]) -> None:
    for other in KINDS:
        limiters = [kind(**options) for kind in (first, other)]
        same = type(limiters[0]) is type(limiters[1])
        assert limiters[0].hit("k").allowed
        decisions = [limiters[1].hit("k") for _ in range(2)]
        assert [decision.failed for decision in decisions] == [False, False]
        assert [decision.allowed for decision in decisions] == [not same, False]
        for limiter in limiters:
            limiter.reset("k")


def test_a_reset_deletes_the_state_of_a_key(options: Any) -> None:
    limiter = FixedWindow(1, 10, **options)
    assert not limiter.reset("k")
    limiter.hit("k")
    assert limiter.reset("k")
    assert limiter.hit("k")


def test_limiters_describe_themselves(options: Any) -> None:
    assert LeakyBucket(200, 100).describe() == "200 requests/s, up to 100 wait, then refused"
    assert "5,000 requests per hour" in FixedWindow(5000, 3600).describe()
    assert SlidingWindow(10, 60).describe() == "about 10 requests in any minute, then refused"
    assert Concurrency(100, 20).describe() == "100 requests at a time, up to 20 wait, then refused"
    assert "each 500 ms" in TokenBucket.from_interval(500, 3, 1, 700).describe()
    assert repr(LeakyBucket(1, name="search")) == "<LeakyBucket 'search': 1 request/s, then refused>"
    assert str(Limited(Decision(False, limit=5, retry_after=1.5))) == "Over the limit of 5. Try again after 1.5 s."


@pytest.mark.parametrize(
    ("rate", "burst", "passing"),
    [(3000, 0, 1000), (3000, 1, 2000), (999, 0, 500), (300, 0, 250), (1900, 1, 1500), (300, 1, 300), (3000, 3, 3000)],
)
def test_a_burst_that_is_too_small_for_whole_milliseconds_is_reported(
    rate: int, burst: int, passing: int, options: Any, clock: Clock
) -> None:
    text = f"LeakyBucket({rate}, burst={burst}) lets only {passing:,} requests/s pass"
    expected = pytest.warns(RuntimeWarning, match=re.escape(text)) if passing < rate else nullcontext()
    with expected as warned:
        limiter = LeakyBucket(rate, burst, **options)
    assert (f"at most {passing:,} requests/s pass" in limiter.describe()) is (passing < rate)
    count = 0
    for _ in range(1000):
        while limiter.hit("k"):
            count += 1
        clock.advance(0.001)
    assert count == pytest.approx(passing, abs=burst + 1)
    if warned:
        assert warned[0].filename == __file__


def test_a_capacity_that_is_too_small_for_whole_milliseconds_is_reported(options: Any) -> None:
    with pytest.warns(
        RuntimeWarning, match=r"lets only 2,000 requests/s pass.* Set capacity to at least 3\."
    ) as warned:
        TokenBucket("3000/s", 2, max_wait=0, **options)
    assert warned[0].filename == __file__
    TokenBucket("3000/s", 3, max_wait=0, **options)
    TokenBucket("3000/s", 2, **options)  # requests wait for their tokens


WRONG: list[tuple[type[Any], tuple[Any, ...], dict[str, Any], str]] = [
    (LeakyBucket, (0,), {}, "rate must be greater than 0"),
    (LeakyBucket, (float("nan"),), {}, "rate must be greater than 0"),
    (LeakyBucket, (float("inf"),), {}, "rate must be greater than 0"),
    (LeakyBucket, ("5",), {}, "rate must be a number"),
    (LeakyBucket, (True,), {}, "rate must be a number"),
    (LeakyBucket, (1, -1), {}, "burst must be at least 0"),
    (LeakyBucket, (1,), {"idle": -1}, "idle must be at least 0"),
    (LeakyBucket, (1e-10,), {}, "rate must be greater than 0, from 1e-09 to 1,000,000,000,000,000, not 1e-10"),
    (LeakyBucket, (10**16,), {}, "rate must be greater than 0, from 1e-09 to 1,000,000,000,000,000"),
    (LeakyBucket, (1, 10**400), {}, "burst must be at most 1,000,000,000,000,000"),
    (FixedWindow, (10**16, 1), {}, "limit must be greater than 0, from"),
    (FixedWindow, (1, 2e9), {}, "window must be greater than 0, from 1e-09 to 1,000,000,000, not"),
    (SlidingWindow, (1, 10**400), {}, "window must be greater than 0, from"),
    (Concurrency, (10**16,), {}, "max must be greater than 0, from"),
    (Concurrency, (1,), {"lease": 10**10}, "lease must be greater than 0, from"),
    (TokenBucket, ("10/s", 10**20), {}, "capacity must be at most 1,000,000,000,000,000"),
    (TokenBucket, (f"{10**40}/s",), {}, "rate must be greater than 0, from 1e-09 to"),
    (TokenBucket, (10**400,), {}, "A rate must be greater than 0 and at most"),
    (TokenBucket, ("1/s",), {"max_wait": 10**10}, "max_wait must be at most 1,000,000,000"),
    (TokenBucket.from_interval, (10**16, 1), {}, "interval_ms must be greater than 0, from"),
    (TokenBucket.from_interval, (1, 1, 1e-10), {}, "quantum must be greater than 0, from"),
    (FixedWindow, (0, 1), {}, "limit must be greater than 0"),
    (FixedWindow, (1.5, 1), {}, "limit must be a whole number"),
    (FixedWindow, (1, 0), {}, "window must be greater than 0"),
    (FixedWindow, (1, 0.0001), {}, r"window must be at least 0\.001 seconds"),
    (SlidingWindow, (0, 1), {}, "limit must be greater than 0"),
    (SlidingWindow, (1, -1), {}, "window must be greater than 0"),
    (Concurrency, (0,), {}, "max must be greater than 0"),
    (Concurrency, (1, -1), {}, "burst must be at least 0"),
    (Concurrency, (1, 0, 0), {}, "default_delay must be greater than 0"),
    (Concurrency, (1,), {"lease": 0}, "lease must be greater than 0"),
    (TokenBucket, ("10", 1), {}, "is not a rate"),
    (TokenBucket, ("10/s", -1), {}, "capacity must be at least 0"),
    (TokenBucket, ("10/s",), {"max_wait": -1}, "max_wait must be at least 0"),
    (TokenBucket, ("10/s",), {"max_wait": "soon"}, "is not a duration"),
    (TokenBucket.from_interval, (0, 1), {}, "interval_ms must be greater than 0"),
    (TokenBucket.from_interval, (1, -1), {}, "capacity must be at least 0"),
    (TokenBucket.from_interval, (1, 1, 0), {}, "quantum must be greater than 0"),
    (TokenBucket.from_interval, (1, 1, 1, -1), {}, "max_wait must be at least 0"),
    (TokenBucket.from_interval, (1, 1), {"idle": -1}, "idle must be at least 0"),
    (FixedWindow, (1, 1), {"on_error": "shut"}, "on_error must be one of open, closed, local, raise"),
    (FixedWindow, (1, 1), {"store": 5}, "store must be the name of a shared dictionary"),
]


@pytest.mark.parametrize(("cls", "numbers", "options", "text"), WRONG)
def test_wrong_arguments(cls: type[Any], numbers: tuple[Any, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        cls(*numbers, **options)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: LeakyBucket(1, brust=5), "LeakyBucket() has no option 'brust'. Did you mean 'burst'?"),
        (lambda: FixedWindow(1, 1, prefx="a"), "FixedWindow() has no option 'prefx'. Did you mean 'prefix'?"),
        (
            lambda: SlidingWindow(1, 1, on_eror="open"),
            "SlidingWindow() has no option 'on_eror'. Did you mean 'on_error'?",
        ),
        (lambda: Concurrency(1, leese=5), "Concurrency() has no option 'leese'. Did you mean 'lease'?"),
        (lambda: TokenBucket("1/s", maxwait=5), "TokenBucket() has no option 'maxwait'. Did you mean 'max_wait'?"),
        (
            lambda: TokenBucket.from_interval(1, 1, stor="x"),
            "TokenBucket() has no option 'stor'. Did you mean 'store'?",
        ),
        (lambda: FixedWindow(1, 1, zzz=1), "Use limit, window, clock, name, on_error, prefix, store."),
    ],
)
def test_a_misspelt_option_is_an_error_with_the_nearest_name(call: Callable[[], Any], hint: str) -> None:
    with pytest.raises(TypeError, match=re.escape(hint)):
        call()


def test_a_misspelt_option_is_an_error_of_the_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "misspelt.py"
    file.write_text(
        "from resty_django.limits import FixedWindow, LeakyBucket, TokenBucket\n"
        "LeakyBucket(1, 5, prefix='a:', idle=None)\n"
        "TokenBucket('10/s', 50, max_wait=1.5, on_error='open')\n"
        "LeakyBucket(1, brust=5)\n"
        "FixedWindow(1, 1, prefx='a:')\n"
        "TokenBucket.from_interval(1, 1, maxwait_ms=5)\n"
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    root = Path(__file__).parents[3]
    checked = subprocess.run([*command, str(file)], cwd=root, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert [line.rpartition("misspelt.py:")[2].split(":")[0] for line in lines] == ["4", "5", "6"], checked.stdout


@pytest.mark.parametrize("rate", ["10/s", 10, "600/m", "2 per minute", "7/30s", "1000/s"])
def test_a_token_bucket_by_rate_has_the_numbers_of_its_interval(rate: Any, options: Any) -> None:
    by_rate = TokenBucket(rate=rate, capacity=50, max_wait=0.7, prefix="a:", **options)
    interval_ms, capacity, quantum = refill_of(rate, 50)
    by_interval = TokenBucket.from_interval(interval_ms, capacity, quantum, max_wait_ms=700, prefix="b:", **options)
    assert by_rate.config == by_interval.config
    assert [by_rate.hit("k") for _ in range(60)] == [by_interval.hit("k") for _ in range(60)]


@pytest.mark.parametrize(
    ("max_wait", "seconds", "milliseconds"),
    [
        (None, None, math.inf),
        (math.inf, math.inf, math.inf),
        (0, 0, 0),
        (1.5, 1.5, 1500),
        ("500ms", 0.5, 500),
        (timedelta(seconds=2), 2, 2000),
        ("site", "site", 1000),
    ],
)
def test_the_wait_of_a_token_bucket_is_in_seconds(max_wait: Any, seconds: Any, milliseconds: float) -> None:
    bucket = TokenBucket("10/s", 50, max_wait=max_wait, store=LocalStore())
    assert bucket.max_wait == seconds
    assert bucket.config.max_wait == milliseconds
    assert bucket.capacity == 50
    assert TokenBucket("10/s").capacity == 10


@pytest.mark.parametrize("cost", [0, -1, 1.5, "2", None])
async def test_a_cost_must_be_a_whole_number_from_1(cost: Any, options: Any) -> None:
    limiter = TokenBucket.from_interval(1, 5, **options)
    for call in (limiter.hit, limiter.peek, limiter.uncommit):
        with pytest.raises(ValueError, match="cost"):
            call("k", cost)
    for acall in (limiter.ahit, limiter.apeek, limiter.auncommit):
        with pytest.raises(ValueError, match="cost"):
            await acall("k", cost)
    with pytest.raises(ValueError, match="cost"):
        limiter.take("k", cost)


def test_a_key_must_be_text_of_a_bounded_length(options: Any, tmp_path: Any) -> None:
    from resty_django.shdict.lmdb import LmdbDict

    store = LmdbDict("keys", 1024 * 1024, str(tmp_path))
    limiter = FixedWindow(1, 1, store=store, on_error="open")
    for call in (limiter.hit, limiter.peek, limiter.uncommit):
        with pytest.raises(ValueError, match="key"):
            call(None)
        with pytest.raises(BadKey):
            call("k" * 100_000)
    token = TokenBucket.from_interval(1, 1, store=store)
    assert token.take_available(None, 1) == token.take_available(b"k", 1) == token.take_available("k", 0) == 0
    store.close()


def test_a_local_store_is_bounded_and_forgets_what_is_over(clock: Clock) -> None:
    store = LocalStore(2, clock=clock)
    limiter = FixedWindow(1, 10, store=store, clock=clock)
    for key in "abc":
        assert limiter.hit(key)
    assert [limiter.peek(key).allowed for key in "abc"] == [True, False, False]
    clock.advance(11)
    assert not store.delete("b")
    with pytest.raises(ValueError, match="size"):
        LocalStore(0)
