"""Queue polling strategies."""

from __future__ import annotations

from collections import Counter

from resty_django.qless.worker.reservers import Ordered, RoundRobin, Shuffled


def test_ordered_starts_with_the_first_again() -> None:
    reserver = Ordered("abc")
    assert list(reserver.order()) == ["a", "b", "c"]
    reserver.on_poll("b")
    assert list(reserver.order()) == ["a", "b", "c"]


def test_round_robin_continues_after_the_queue_polled_last() -> None:
    reserver = RoundRobin("abc")
    assert list(reserver.order()) == ["a", "b", "c"]
    reserver.on_poll("a")
    assert list(reserver.order()) == ["b", "c", "a"]
    reserver.on_poll("c")
    assert list(reserver.order()) == ["a", "b", "c"]


def test_shuffled_yields_every_order() -> None:
    reserver = Shuffled("abc")
    orders = Counter("".join(reserver.order()) for _ in range(600))
    assert set(orders) == {"abc", "acb", "bac", "bca", "cab", "cba"}
