"""Simulations of a policy: the algorithm decides, on a separate clock."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.limits.policies import simulation
from resty_django.limits.specs.policy_validation import from_values


def tried(arrivals: int, interval: float, lasts: float = 0.0, **values: Any) -> list[simulation.SimulatedRequest]:
    return list(simulation.run(from_values({"name": "p", **values}), arrivals, interval, lasts))


def test_the_first_example_of_the_leaky_bucket() -> None:
    steps = tried(9, 0.1, algorithm="leaky_bucket", rate="2/s", burst=3)
    delays = [step.decision.delay if step.decision else None for step in steps]
    assert delays == pytest.approx([0, 0.4, 0.8, 1.2, None, 1.5, None, None, None], nan_ok=True)
    assert [step.outcome for step in steps][:5] == ["passed", "delayed", "delayed", "delayed", "refused"]
    assert [step.at for step in steps][:3] == [0, 0.1, 0.2]


def test_a_window_ends_on_the_clock_of_the_trial() -> None:
    steps = tried(12, 1, algorithm="fixed_window", limit=2, window="5s")
    assert [bool(step.decision) for step in steps] == [True, True, False, False, False] * 2 + [True, True]


@pytest.mark.parametrize("cost", [1, 2])
def test_several_rates_decide_together(cost: int) -> None:
    rate = f"{3 * cost}/h;{cost}/10s"
    steps = tried(7, 5, algorithm="fixed_window", rate=rate, cost=cost)
    assert [step.outcome for step in steps] == ["passed", "refused"] * 3 + ["refused"]
    assert [step.decision.retry_after for step in steps[1::2]] == [5, 5, 3575]
    assert steps[-1].decision.retry_after == 3600 - 30


def test_slots_are_given_back_after_a_while() -> None:
    steps = tried(6, 0.1, 0.25, algorithm="concurrency", limit=2)
    assert [step.outcome for step in steps] == ["passed", "passed", "refused", "passed", "passed", "refused"]
    assert [step.running for step in steps] == [1, 2, 2, 2, 2, 2]


def test_cost_and_the_bound_of_a_trial() -> None:
    steps = tried(10_000, 0, algorithm="fixed_window", limit=10, window="1h", cost=4)
    assert len(steps) == simulation.MAX_REQUESTS
    assert [bool(step.decision) for step in steps[:3]] == [True, True, False]
