"""No request waits without a bound: on the time, and on how many wait in a process."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, TokenBucket
from resty_django.limits.decorators import limit, limit_rate, limit_rate_either, limit_req
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.policies.files import BadFile, load
from resty_django.limits.requests.check import waiting_requests
from resty_django.limits.specs.policy_validation import BadPolicy
from resty_django.limits.statistics.reporter import stats

from .policy_tools import policy_of
from .view_tools import Site, change, serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

MANY = 12


def at_once(site: Site, view: Any, count: int = MANY, **options: Any) -> list[int]:
    """The statuses of requests that come at the same time, in order of their numbers."""
    if site.asynchronous:

        async def ask() -> list[int]:
            await registry.aload_policies()
            responses = await asyncio.gather(*(site.get(view, **options) for _ in range(count)))
            return [response.status_code for response in responses]

        return sorted(asyncio.run(ask()))
    barrier = threading.Barrier(count)

    def ask_in_thread() -> int:
        barrier.wait(30)
        return asyncio.run(site.get(view, **options)).status_code  # type: ignore[no-any-return]

    with ThreadPoolExecutor(count) as threads:
        return sorted(done.result() for done in [threads.submit(ask_in_thread) for _ in range(count)])


def many_tokens(name: str = "tokens", **values: Any) -> None:
    """One passes at once, and a hundred more may wait for a second, if nothing else bounds them."""
    registry.declare_policy(name, "token_bucket", interval="1s", capacity=1, quantum=100, **values)


def test_a_policy_without_a_wait_refuses_what_would_wait_longer_than_the_site_allows(site: Site) -> None:
    """Also where no view sleeps: a request that passes without waiting owes its token."""
    registry.declare_policy("slow", "token_bucket", interval="1h", capacity=2)
    view = site.view(limit("slow"))
    assert at_once(site, view) == [200] * 2 + [429] * (MANY - 2)


def test_the_bound_on_the_time_is_a_setting(site: Site, settings: Any) -> None:
    change(settings, MAX_WAIT=3 * 3600 + 1)
    registry.declare_policy("slow", "token_bucket", interval="1h", capacity=2)
    view = site.view(limit("slow", max_delay=0))
    assert at_once(site, view) == [200] * 5 + [429] * (MANY - 5)


@pytest.mark.parametrize("wait", ["", "5s"])
def test_a_process_has_a_maximum_of_waiting_requests(site: Site, settings: Any, wait: str) -> None:
    change(settings, MAX_WAITING=3, MAX_DELAY=5.0)
    many_tokens(max_wait=wait)
    view = site.view(limit("tokens"))
    assert at_once(site, view) == [200] * 4 + [429] * (MANY - 4)
    assert waiting_requests.count == 0


def test_places_are_counted_over_all_limits(site: Site, settings: Any) -> None:
    change(settings, MAX_WAITING=0, MAX_DELAY=5.0)
    many_tokens("one")
    many_tokens("other")
    for name in ("one", "other"):
        assert at_once(site, site.view(limit(name)), 3) == [200, 429, 429]


async def test_a_request_that_may_not_wait_is_an_ordinary_refusal_and_counts_nowhere(site: Site, settings: Any) -> None:
    change(settings, MAX_WAITING=0, MAX_DELAY=5.0)
    many_tokens()
    bucket = TokenBucket.from_interval(3_600_000, 50, prefix="other:")
    window = FixedWindow(50, 3600, prefix="window:")
    slots = Concurrency(5, prefix="slots:")
    view = site.view(limit("tokens", bucket, window, slots))
    await registry.aload_policies()
    assert await site.statuses(view, 1) == [200]
    refused = await site.get(view)
    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    assert json.loads(refused.content)["violated-policies"] == ["tokens"]
    assert refused["RateLimit"] == '"tokens";r=0;t=1'
    assert (bucket.peek("192.0.2.1").remaining, window.peek("192.0.2.1").remaining) == (49, 49)
    assert slots.peek("192.0.2.1").remaining == 5
    tokens = policy_of("tokens")
    assert tokens.limiter.peek("192.0.2.1").state == -1
    stats.flush()
    counted = stats.totals()["tokens"]
    assert (counted.passed, counted.delayed, counted.refused) == (1, 0, 1)


def test_a_decorator_without_a_wait_uses_the_setting(site: Site) -> None:
    assert at_once(site, site.view(limit_rate("1/h"))) == [200] + [429] * (MANY - 1)
    assert at_once(site, site.view(limit_rate("1/h", max_wait=None))) == [200] + [429] * (MANY - 1)


def test_a_decorator_may_say_unlimited(site: Site, settings: Any) -> None:
    change(settings, MAX_WAITING=0)
    view = site.view(limit_rate("1/h", max_wait="unlimited", max_delay=0.01))
    assert at_once(site, view) == [200] * MANY


@pytest.mark.parametrize(("max_wait", "passing"), [(None, 1), (math.inf, 4), (0, 1)])
async def test_a_limiter_of_a_view_is_bounded_unless_it_says_otherwise(
    site: Site, max_wait: float | None, passing: int
) -> None:
    view = site.view(limit(TokenBucket.from_interval(3_600_000, 1, 1, max_wait, prefix="b:"), max_delay=0.01))
    assert await site.statuses(view, 4) == [200] * passing + [429] * (4 - passing)


def test_what_has_a_burst_is_bounded_by_it(site: Site) -> None:
    view = site.view(limit_req("1/h", burst=5, max_delay=0.01))
    assert at_once(site, view) == [200] * 6 + [429] * (MANY - 6)


def test_keys_with_a_burst_share_the_places_of_the_process(site: Site, settings: Any) -> None:
    """Spoofed addresses: each has a burst, and all together could fill the process with waiting requests."""
    change(settings, MAX_WAITING=0, MAX_DELAY=5.0)
    view = site.view(limit_req("1/h", burst=5, key="header:X-Client"))
    for client in ("one", "other"):
        assert at_once(site, view, 3, headers={"X-Client": client}) == [200, 429, 429]


async def test_a_request_refused_for_want_of_a_place_leaves_no_trace(site: Site, settings: Any) -> None:
    change(settings, MAX_WAITING=0, MAX_DELAY=5.0)
    bucket = LeakyBucket(1 / 3600, 5, prefix="leaky:")
    slots = Concurrency(1, 5, 3600.0, prefix="slots:")
    leaky, busy = site.view(limit(bucket)), site.view(limit(slots))
    assert await site.statuses(leaky, 2) == [200, 429]
    assert bucket.peek("192.0.2.1").remaining == 5
    assert slots.hit("192.0.2.1")
    refused = await site.get(busy)
    assert (refused.status_code, refused["Retry-After"]) == (429, "3600")
    assert slots.peek("192.0.2.1").remaining == 5
    assert slots.unit_delay == 3600  # a request that does not run has no latency


async def test_the_longest_wait_of_the_site_counts_next_to_a_longer_wait(site: Site, settings: Any) -> None:
    change(settings, MAX_WAIT=1.0)
    bucket = TokenBucket.from_interval(3_600_000, 1, prefix="tokens:")
    view = site.view(limit(LeakyBucket(1 / 86_400, 5, prefix="leaky:"), bucket, max_delay=0.01))
    assert await site.statuses(view, 2) == [200, 429]


async def test_a_cancelled_request_no_longer_counts_as_waiting(settings: Any) -> None:
    many_tokens()
    site = Site(True)
    view = site.view(limit("tokens"))
    await registry.aload_policies()
    assert await site.statuses(view, 1) == [200]
    task = asyncio.create_task(site.statuses(view, 1))
    until = time.monotonic() + 30
    while not waiting_requests.count:
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting_requests.count == 0


# --- the middleware --------------------------------------------------------------------------------------------------


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"done")


@pytest.fixture
def served(settings: Any) -> Iterator[None]:
    with serving(settings, [path("page/", page)], ["resty_django.limits.middleware.LimitMiddleware"]):
        yield


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_middleware_bounds_waiting_as_well(asynchronous: bool, settings: Any, served: None) -> None:
    """Two requests wait: in an async site for an hour, unless they are cancelled; in a sync one for `MAX_DELAY`."""
    change(settings, MAX_WAITING=2, MAX_DELAY=5.0, MAX_WAIT=3 * 3600.0)
    registry.declare_policy("tokens", "token_bucket", interval="1h", capacity=1, quantum=100, path="/page/", key="all")
    registry.refresh_policies()

    async def ask() -> list[int]:
        tasks = [asyncio.create_task(AsyncClient().get("/page/")) for _ in range(MANY)]
        until = time.monotonic() + 60
        while sum(task.done() for task in tasks) < MANY - 2:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        assert waiting_requests.count == 2
        answered = [task.result().status_code for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sorted(answered)

    if asynchronous:
        assert asyncio.run(ask()) == [200] + [429] * (MANY - 3)
    else:
        with ThreadPoolExecutor(MANY) as threads:
            answers = [threads.submit(lambda: Client().get("/page/").status_code) for _ in range(MANY)]
        assert sorted(answer.result() for answer in answers) == [200] * 3 + [429] * (MANY - 3)
    assert waiting_requests.count == 0


# --- a policy cannot say unlimited -----------------------------------------------------------------------------------


def test_no_way_to_a_policy_takes_a_wait_without_a_bound(admin_client: Client) -> None:
    values = {"name": "free", "algorithm": "token_bucket", "interval": "1s", "capacity": 5, "max_wait": "unlimited"}
    with pytest.raises(ValidationError) as error:
        LimitPolicy(**values).full_clean()
    assert set(error.value.message_dict) == {"max_wait"}
    with pytest.raises(BadPolicy):
        registry.declare_policy(**values)  # type: ignore[arg-type]
    with pytest.raises(BadFile, match="max_wait"):
        load(json.dumps([{"model": "resty_limits.limitpolicy", "fields": values}]))
    posted = {**values, "key": "ip", "cost": 1, "mode": "enforce", "order": 0}
    response = admin_client.post("/admin/resty_limits/limitpolicy/add/", posted)
    assert response.status_code == 200
    assert b"The wait of a policy must have a limit" in response.content
    assert not LimitPolicy.objects.exists()


# --- costs that can never pass ---------------------------------------------------------------------------------------


def test_a_cost_that_can_never_pass_is_an_error_at_import() -> None:
    for wrong in (lambda: limit_rate("5/s", cost=6, max_wait=0), lambda: limit(FixedWindow(5, 60), cost=6)):
        with pytest.raises(ValueError, match="cost 6"):
            wrong()


async def test_a_cost_that_can_never_pass_has_no_retry_after(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def priced(request: HttpRequest) -> int:
        return int(request.GET["n"])

    window, bucket = FixedWindow(5, 60, prefix="w:", name="window"), TokenBucket.from_interval(1000, 50, prefix="b:")
    for guarding in (limit(window, cost=priced), limit(bucket, window, cost=priced)):
        window.reset("192.0.2.1")
        view = site.view(guarding)
        for accept in ("text/html", "application/json"):
            refused = await site.get(view, path="/?n=6", headers={"Accept": accept})
            assert refused.status_code == 429
            assert "Retry-After" not in refused
            assert refused["X-RateLimit-Remaining"] == "0"
            assert b"Please try again" not in refused.content
        assert "its cost can never pass" in caplog.text
        assert await site.statuses(view, 2, path="/?n=5") == [200, 429]
    assert bucket.peek("192.0.2.1").remaining >= 45
    watching = site.view(limit(window, cost=priced, dry_run=True))
    assert await site.statuses(watching, 1, path="/?n=6") == [200]


async def test_a_cost_that_one_of_either_bucket_can_pay_passes(site: Site) -> None:
    view = site.view(limit_rate_either("10/h", "2/h", cost=5))
    assert await site.statuses(view, 3) == [200, 200, 429]
    view = site.view(limit_rate_either("10/h", "2/h", cost=lambda request: int(request.GET["n"])))
    assert await site.statuses(view, 2, path="/?n=10") == [200, 429]
    refused = await site.get(view, path="/?n=11")
    assert refused.status_code == 429
    assert "Retry-After" not in refused
    with pytest.raises(ValueError, match="cost 11"):
        limit_rate_either("10/h", "2/h", cost=11)


async def test_nothing_is_said_to_remain_in_a_refusal(site: Site) -> None:
    view = site.view(limit(FixedWindow(5, 60, prefix="w:"), cost=3))
    assert await site.statuses(view, 1) == [200]
    refused = await site.get(view)
    assert (refused.status_code, refused["X-RateLimit-Remaining"]) == (429, "0")
