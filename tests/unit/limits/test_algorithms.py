"""The algorithms on bytes that they have not written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits import Concurrency, Decision, FixedWindow, LeakyBucket, LocalStore, SlidingWindow, TokenBucket
from resty_django.limits.algorithms import FRAME
from resty_django.limits.errors import ForeignData

STORE = LocalStore()
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
    try:
        _, _, decision = limiter.step(commit, 1, bytes(FRAME) + payload)
    except ForeignData:
        return
    assert isinstance(decision, Decision)


@given(payload=st.binary(max_size=200))
def test_states_of_concurrency_consist_of_a_head_and_leases(payload: bytes) -> None:
    if len(payload) % 16 != 4:
        with pytest.raises(ForeignData):
            LIMITERS[-1].step(True, 1, bytes(FRAME) + payload)
