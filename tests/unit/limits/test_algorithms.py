"""The algorithms on bytes that they have not written."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits import Concurrency, Decision, FixedWindow, LeakyBucket, LocalStore, SlidingWindow, TokenBucket
from resty_django.limits.algorithms import FRAME
from resty_django.limits.algorithms.concurrency import MIN_LEASES_BYTES
from resty_django.limits.errors import ForeignData

STORE = LocalStore()
STATE_BYTES: dict[type[Any], Collection[int]] = {
    LeakyBucket: {16},
    FixedWindow: {17},
    SlidingWindow: {24},
    TokenBucket: {18},
    Concurrency: range(20, 201, MIN_LEASES_BYTES),
}
"""The lengths of states. A state of `Concurrency` is a head of 20 bytes and space for leases."""
LIMITERS = [
    LeakyBucket(10, burst=5, store=STORE),
    FixedWindow(7, 60, store=STORE),
    SlidingWindow(7, 60, store=STORE),
    TokenBucket("10/s", store=STORE),
    Concurrency(7, 2, store=STORE),
]


@pytest.mark.parametrize("limiter", LIMITERS, ids=lambda limiter: type(limiter).__name__)
@pytest.mark.parametrize("commit", [False, True], ids=["peek", "hit"])
@given(payload=st.binary(max_size=200))
def test_bytes_of_another_layout_raise_foreign_data(limiter: Any, commit: bool, payload: bytes) -> None:
    is_state = len(payload) in STATE_BYTES[type(limiter)]
    try:
        _, _, decision = limiter.step(commit, 1, bytes(FRAME) + payload)
    except ForeignData:
        assert not is_state or isinstance(limiter, Concurrency)  # whose head has to contain a possible number of leases
    except struct.error:  # numbers that do not fit into the new state
        assert is_state
    else:
        assert is_state
        assert isinstance(decision, Decision)


@pytest.mark.parametrize("limiter", LIMITERS, ids=lambda limiter: type(limiter).__name__)
def test_only_states_have_the_length_of_a_state(limiter: Any) -> None:
    for length in range(201):
        if length in STATE_BYTES[type(limiter)]:
            assert limiter.step(True, 1, bytes(FRAME + length))[2].allowed
        else:
            with pytest.raises(ForeignData):
                limiter.step(True, 1, bytes(FRAME + length))
