"""The decorator `limited` for any function, sync and async."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from resty_django.limits import Limited, LocalStore, StoreFailed, TokenBucket, bans, call_refused, limited
from resty_django.limits.jobs import JobLimit
from resty_django.limits.testing import frozen_limits
from tests.integration.limits.view_tools import change, on_dead_redis

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


async def test_a_coroutine_function_is_limited() -> None:
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


def test_all_of_several_rates_apply_and_the_key_none_is_free() -> None:
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


def test_a_function_may_have_a_separate_store() -> None:
    one = limited("1/h", store=LocalStore())(lambda: 1)
    assert one() == 1
    with pytest.raises(Limited):
        one()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: limited("1/s", ban="15m"), "ban= bans a key, so it needs key="),
        (lambda: limited("1/s", key=str, ban_after=2), r"@limited\(\): ban_after= needs ban="),
        (lambda: limited("1/s", key=str, bann="1m"), "Did you mean 'ban'"),
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


# --- bans ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
def redeem(request: pytest.FixtureRequest) -> Any:
    """Decorate a function that returns its argument, sync or async, and return an async function that calls it."""

    def decorate(rate: Any, **options: Any) -> Any:
        def redeem(code: str | None) -> str | None:
            return code

        async def aredeem(code: str | None) -> str | None:
            return code

        limit = limited(rate, key=lambda code: code, **options)
        return limit(aredeem) if request.param == "async" else sync_to_async(limit(redeem))

    return decorate


async def wait_of(function: Any, key: str) -> float:
    """Call the function, which is refused, and return the seconds that it has to wait."""
    with pytest.raises(Limited) as caught:
        await function(key)
    return caught.value.decision.retry_after


@pytest.mark.usefixtures("bans_store")
async def test_a_key_is_banned_after_refused_calls(redeem: Any) -> None:
    with frozen_limits() as clock:
        function = redeem("2/h", ban="3h", ban_after=2, name="codes")
        assert [await function("a"), await function("a")] == ["a", "a"]
        assert await wait_of(function, "a") == 1800
        assert await wait_of(function, "a") == 3 * 3600
        clock.tick(3 * 3600 - 1)
        assert await wait_of(function, "a") == 1
        assert await function("b") == "b"
        (ban,) = await sync_to_async(bans.current_bans)()
        assert (ban.limit, ban.key, ban.number) == ("codes", "a", 1)
        assert ban.reason.startswith("over ")
        clock.tick(1)
        assert [await function("a"), await function("a")] == ["a", "a"]
        await wait_of(function, "a")
        assert await wait_of(function, "a") == 6 * 3600


@pytest.mark.usefixtures("bans_store")
async def test_a_banned_key_does_not_wait_and_uses_no_tokens(redeem: Any) -> None:
    with frozen_limits():
        function = redeem("1/h;5/d", wait=None, ban="15m", name="codes")
        await bans.aadd("a", for_="1h", limit="codes")
        assert await wait_of(function, "a") == 3600
        await sync_to_async(bans.lift)("a", "codes")
        assert await function("a") == "a"
        await bans.aadd("b", for_="1h")
        assert await wait_of(function, "b") == 3600
        assert await function(None) is None


async def test_while_the_dictionary_of_bans_is_down(redeem: Any) -> None:
    with on_dead_redis("bans"):
        function = redeem("1/h", ban="15m", store=LocalStore(), on_error="open")
        assert await function("a") == "a"
        assert 0 < await wait_of(function, "a") <= 3600
        assert await wait_of(redeem("1/h", ban="15m", store=LocalStore(), on_error="closed"), "a") == 1
        with pytest.raises(StoreFailed):
            await redeem("1/h", ban="15m", store=LocalStore(), on_error="raise")("a")


@pytest.fixture
def refusals() -> Iterator[list[tuple[Any, ...]]]:
    """Return what receivers of `call_refused` receive: a sync one, and an async one that pauses."""
    told: list[tuple[Any, ...]] = []

    def receive(sender: Any, decision: Any, kind: str, name: str, key: str, **named: Any) -> None:
        told.append((sender, kind, name, key, decision.allowed))

    async def receive_async(kind: str, **named: Any) -> None:
        await asyncio.sleep(0)
        told.append(("async", kind))

    call_refused.connect(receive)
    call_refused.connect(receive_async)
    yield told
    call_refused.disconnect(receive)
    call_refused.disconnect(receive_async)


async def test_a_refused_call_is_logged_and_sends_a_signal(refusals: Any, caplog: pytest.LogCaptureFixture) -> None:
    @limited("1/h", key=lambda phone: phone, name="sms")
    def send(phone: str) -> None: ...

    @limited("1/h", name="mail")
    async def mail() -> None: ...

    send("1")
    await mail()
    assert refusals == []
    with pytest.raises(Limited):
        await sync_to_async(send)("1")
    assert refusals == [(TokenBucket, "function", "sms", "1", False), ("async", "function")]
    del refusals[:]
    with pytest.raises(Limited):
        await mail()
    assert set(refusals) == {(TokenBucket, "function", "mail", "", False), ("async", "function")}
    shown = [record.getMessage() for record in caplog.records if record.name == "resty_django.limits"]
    assert shown[0].startswith("refused by sms: a call of 1; would pass in ")
    assert shown[1].startswith("refused by mail: a call; would pass in ")


def test_a_refused_job_sends_a_signal_and_is_not_logged(refusals: Any, caplog: pytest.LogCaptureFixture) -> None:
    limit = JobLimit(TokenBucket("1/h", 1, name="reports", max_wait=0))
    first = limit.slot("7", 0)
    assert first.enter() is None
    first.leave()
    seconds = limit.slot("7", 0).enter()
    assert seconds is not None
    assert 3500 < seconds <= 3600
    assert [told for told in refusals if told[0] != "async"] == [(TokenBucket, "job", "job:reports", "7", False)]
    assert caplog.records == []


def test_an_error_in_a_receiver_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fails(**named: Any) -> None:
        raise OSError("receiver")

    @limited("1/h", name="fax")
    def send() -> None: ...

    send()
    call_refused.connect(fails)
    try:
        with pytest.raises(Limited):
            send()
    finally:
        call_refused.disconnect(fails)
    assert "receiver" in caplog.text


def test_a_long_key_is_cut_off_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @limited("1/h", key=lambda phone: phone, name="sms")
    def send(phone: str) -> None: ...

    for _ in range(2):
        with suppress(Limited):
            send("1\n" + 500 * "x")
    (message,) = [record.getMessage() for record in caplog.records]
    assert "\n" not in message
    assert len(message) < 300


def test_only_a_share_of_the_refused_calls_is_logged(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    change(settings, LOG_REFUSALS=0)

    @limited("1/h", name="quiet")
    def send() -> None: ...

    send()
    with pytest.raises(Limited):
        send()
    assert caplog.records == []
