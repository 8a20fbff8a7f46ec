"""The quick ways of `Concurrency` come to what the long ones come to, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.algorithms import FRAME, concurrency
from resty_django.limits.algorithms.concurrency import Numbers
from resty_django.limits.errors import ForeignData

FRAMES = bytes(range(FRAME))
TOKENS = [bytes([number]) * 8 for number in range(1, 12)] + [b"\1\1\1\1\0\0\0\0"]
steps = st.tuples(
    st.sampled_from(["incoming"] * 3 + ["leaving"] * 3 + ["uncommit", "renew"]),
    st.sampled_from([0, 1, 999, 1000, 59_999, 60_000, 61_000, -500]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(TOKENS),
    st.sampled_from([0, 1000, 1000, 1000, 120_000]),
)


def run(trace: list[Any], quick: bool) -> tuple[list[Any], int]:
    """What comes of each step, and how many went the quick way."""
    state, now, outcomes, fast_count = None, 10**12, [], 0
    for name, passed, cost, token, lease in trace:
        now += passed
        numbers = Numbers(7, 2, 1.0, lease, token)
        if name == "incoming":
            outcome = concurrency.incoming(state, now, numbers, cost, True)
            fast_count += quick and state is not None and concurrency.take_slot(state, now, numbers) is not None
        else:
            outcome = getattr(concurrency, name)(state, now, numbers, cost)
            fast_count += quick and state is not None and concurrency.give_back_slot(state, now, numbers) is not None
        new, ttl, result = outcome
        if new is not None:
            state = FRAMES + new[FRAME:] if state is None else new
            assert state[:FRAME] == FRAMES
        outcomes.append((state, ttl, result))
    return outcomes, fast_count


@contextmanager
def the_long_way() -> Iterator[None]:
    with (
        mock.patch.object(concurrency, "take_slot", return_value=None),
        mock.patch.object(concurrency, "give_back_slot", return_value=None),
    ):
        yield


def both(trace: list[Any]) -> int:
    outcomes, fast_count = run(trace, quick=True)
    with the_long_way():
        assert run(trace, quick=False)[0] == outcomes
    return fast_count


@given(st.lists(steps, max_size=40))
def test_both_ways_come_to_the_same(trace: list[Any]) -> None:
    both(trace)


def test_the_quick_ways_are_take_slot() -> None:
    come = [("incoming", 1, 1, token, 1000) for token in TOKENS[:8]]
    go = [("leaving", 1, 1, token, 1000) for token in TOKENS[:8]]
    assert both((come + go) * 3) > 24


@pytest.mark.parametrize(
    "trace",
    [
        [("incoming", 0, 2, TOKENS[0], 1000), ("leaving", 0, 1, TOKENS[0], 1000)],
        [
            ("incoming", 0, 1, TOKENS[0], 1000),
            ("incoming", 0, 1, TOKENS[1], 120_000),
            ("leaving", 0, 1, TOKENS[1], 1000),
        ],
        [
            ("incoming", 0, 1, TOKENS[0], 1000),
            ("incoming", 0, 1, TOKENS[1], 0),
            ("leaving", 0, 1, TOKENS[0], 1000),
        ],
    ],
    ids=["one token, two leases", "the last to end goes", "a slot without a lease"],
)
def test_what_the_quick_ways_leave_to_the_long_ones(trace: list[Any]) -> None:
    both(trace)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_by_both(body: bytes) -> None:
    numbers = Numbers(7, 2, 1.0, 1000, TOKENS[0])
    state = FRAMES + body

    def decide_both() -> list[Any]:
        results: list[Any] = []
        for function, arguments in ((concurrency.incoming, (1, True)), (concurrency.leaving, (1,))):
            try:
                results.append(function(state, 10**12, numbers, *arguments))  # type: ignore[operator]
            except ForeignData:
                results.append("foreign")
        return results

    first = decide_both()
    with the_long_way():
        assert decide_both() == first
