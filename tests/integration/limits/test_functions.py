"""The decorator `limited` for any function, sync and async."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django.limits import Limited, LocalStore, limited
from resty_django.limits.testing import frozen_limits

pytestmark = pytest.mark.usefixtures("empty_limits")


def test_calls_beyond_the_rate_raise() -> None:
    calls = []

    @limited("3/h", key=lambda phone, text: phone)
    def send(phone: str, text: str) -> str:
        """Send it."""
        calls.append(phone)
        return text

    assert [send("1", "a"), send("1", "b"), send("1", text="c")] == ["a", "b", "c"]
    with pytest.raises(Limited) as caught:
        send("1", "d")
    assert 0 < caught.value.decision.retry_after <= 1200
    assert send("2", "e") == "e"
    assert calls == ["1", "1", "1", "2"]
    assert (send.__name__, send.__doc__) == ("send", "Send it.")


async def test_an_async_function() -> None:
    @limited("2/h")
    async def fetch(number: int) -> int:
        return number

    assert [await fetch(1), await fetch(2)] == [1, 2]
    with pytest.raises(Limited):
        await fetch(3)


def test_a_call_waits_for_its_turn() -> None:
    @limited("20/s capacity=1", wait="30s")
    def call() -> float:
        return time.monotonic()

    times = [call() for _ in range(4)]
    assert times[-1] - times[0] >= 0.09
    assert times == sorted(times)


async def test_an_async_call_waits_without_blocking() -> None:
    import asyncio

    @limited("20/s capacity=1", wait=None)
    async def call() -> float:
        return time.monotonic()

    started = time.monotonic()
    times = await asyncio.gather(*(call() for _ in range(4)))
    assert max(times) - started >= 0.09


def test_several_rates_and_none() -> None:
    @limited("5/h;2/d", key=lambda user: user)
    def export(user: str | None) -> bool:
        return True

    assert [export("a"), export("a")] == [True, True]
    with pytest.raises(Limited):
        export("a")
    assert all(export(None) for _ in range(9))


def test_functions_with_a_name_share_a_limit() -> None:
    first = limited("2/h", name="carrier")(lambda: 1)
    second = limited("2/h", name="carrier")(lambda: 2)
    assert (first(), second()) == (1, 2)
    with pytest.raises(Limited):
        first()
    with frozen_limits() as clock:
        assert (first(), second()) == (1, 2)
        clock.tick(1800)
        assert first() == 1


def test_a_store_of_its_own() -> None:
    one = limited("1/h", store=LocalStore())(lambda: 1)
    assert one() == 1
    with pytest.raises(Limited):
        one()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: limited("fast"), "'fast' is not a rate"),
        (lambda: limited("1/s", kye="x"), "Did you mean 'key'"),
        (lambda: limited("1/s", key=7), "key of @limited\\(\\) must be"),  # type: ignore[arg-type]
        (lambda: limited("1/s", wait="soon"), "is not a duration"),
        (lambda: limited("1/s", on_error="explode"), "on_error must be one of"),
        (lambda: limited(lambda: 1), "Write @limited"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments(wrong: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        wrong()
