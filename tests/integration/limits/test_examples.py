"""The worked examples over the pure algorithms and every store, sync and async."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, NotFound, TokenBucket
from tests.limit_examples import TABLES
from tests.limiting import Bench

LIMITERS: dict[str, tuple[type[Any], tuple[Any, ...]]] = {
    "E1": (LeakyBucket, (2, 3)),
    "E2": (LeakyBucket, (1, 0)),
    "E3": (LeakyBucket, (10, 2)),
    "E4": (LeakyBucket, (2, 3)),
    "E5": (LeakyBucket, (2, 5)),
    "E6": (LeakyBucket, (0.125, 2)),
    "E7": (LeakyBucket, (2, 1)),
    "C1": (FixedWindow, (3, 10)),
    "C2": (FixedWindow, (1, 1)),
    "N1": (Concurrency, (2, 3, 0.5)),
    "N2": (Concurrency, (1, 0, 0.5)),  # the table does not say; these match its results
    "R1": (TokenBucket.from_interval, (500, 3, 1, 700)),
    "R2": (TokenBucket.from_interval, (100, 10, 2)),
    "R3": (TokenBucket.from_interval, (1000, 2)),
    "R4": (TokenBucket.from_interval, (100, 5)),
}
EXAMPLES = {table.split(".")[0].strip(): table.strip().splitlines()[1:] for table in TABLES.split("\n\n")}


def test_the_page_has_all_tables() -> None:
    assert list(EXAMPLES) == list(LIMITERS)
    assert sum(len(lines) for lines in EXAMPLES.values()) == 131


async def test_examples(every: Bench) -> None:
    start = every.clock.milliseconds
    for name, (cls, numbers) in LIMITERS.items():
        await play(every, name, every.make(cls, *numbers, prefix=f"{name}:"), start)
    for name in ("N1", "N2"):  # the same without leases
        cls, numbers = LIMITERS[name]
        await play(every, name, every.make(cls, *numbers, lease=None, prefix=f"{name} without leases:"), start)


async def play(bench: Bench, name: str, limiter: Any, start: int) -> None:
    bench.states.clear()
    for line in EXAMPLES[name]:
        at, call, result, delay, second = (cell.strip() for cell in line.split(" | "))
        bench.clock.milliseconds = start + int(at)
        assert await outcome(limiter, call.strip("`")) == wanted(result, delay, second), (name, line)


async def outcome(limiter: Any, call: str) -> tuple[Any, ...]:
    """Return the result of a call in the table: "pass" with numbers, "rejected", "not found", or a value."""
    name, arguments = re.fullmatch(r"(\w+)\((.*)\)", call).groups()  # type: ignore[union-attr]
    arguments = arguments.replace("true", "True").replace("false", "False")
    try:
        result = await getattr(limiter, name)(*ast.literal_eval(f"({arguments},)" if arguments else "()"))
    except NotFound:
        return ("not found",)
    if name in {"incoming", "take"}:
        assert bool(result) is result.allowed
        return ("pass", result.delay, result.state) if result else ("rejected", result.state)
    return ("returns", result)


def wanted(result: str, delay: str, second: str) -> tuple[Any, ...]:
    if result == "pass":
        return "pass", pytest.approx(float(delay), abs=1e-12), pytest.approx(float(second), abs=1e-12)
    if result == "rejected":
        return "rejected", None
    if result == "not found":
        return ("not found",)
    if result == "(none)":
        return "returns", None
    value = result.removeprefix("returns ")
    return "returns", {"true": True, "false": False}.get(value, float(value) if value[-1].isdigit() else value)
