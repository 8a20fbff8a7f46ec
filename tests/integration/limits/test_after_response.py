"""Limits that count after the response, and limits with which the view decides."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse

from resty_django.limits import FixedWindow, LeakyBucket, LocalStore, TokenBucket, combine
from resty_django.limits.decorators import limit, limit_conn, limit_count, limit_rate, limit_req, limit_window
from resty_django.limits.testing import no_limits

from .view_tools import Site, sync_requests

pytestmark = pytest.mark.usefixtures("empty_limits")


def is_failed(response: Any) -> bool:
    return bool(response.status_code == 403)


def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    if "crash" in request.GET:
        raise RuntimeError("crash")
    return HttpResponse(status=int(request.GET.get("status", 200)))


LIMITS: list[Any] = [
    lambda **options: limit_window(2, per="1h", **options),
    lambda **options: limit_count(2, per="1h", **options),
    lambda **options: limit_req(
        "1/h", burst=2, nodelay=True, **options
    ),  # the first one passes in addition to the burst, and stays
    lambda **options: limit_rate("1/h", capacity=2, max_wait=0, **options),
]


@pytest.mark.usefixtures("limits_store")
@pytest.mark.parametrize("limit_of", LIMITS)
async def test_only_some_responses_count(site: Site, limit_of: Any) -> None:
    view = site.view(limit_of(count_when=is_failed), body=answer)
    assert await site.statuses(view, 5) == [200] * 5
    assert await site.statuses(view, 3, path="/?status=403") == [403, 403, 429]
    assert await site.statuses(view, 1) == [429]


async def test_a_view_that_raises_does_not_count(site: Site) -> None:
    view = site.view(limit_window(1, per="1h", count_when=is_failed), body=answer)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="crash"):
            await site.get(view, "/?crash")
    assert await site.statuses(view, 2, path="/?status=403") == [403, 429]


async def test_a_view_without_a_response_does_not_count_and_keeps_no_slot(site: Site) -> None:
    """Django explains the mistake, if the limits return None, too."""
    view = site.view(limit_window(1, per="1h", count_when=is_failed), limit_conn(1), body=lambda request: None)
    assert [await site.get(view) for _ in range(3)] == [None] * 3


async def test_the_headers_report_what_is_left(site: Site) -> None:
    view = site.view(limit_window(5, per="1h", count_when=is_failed), body=answer)
    left = [(await site.get(view, f"/?status={status}"))["X-RateLimit-Remaining"] for status in (200, 403, 200)]
    assert left == ["5", "4", "4"]


async def test_the_whole_cost_is_refunded(site: Site) -> None:
    view = site.view(limit_window(6, per="1h", cost=3, count_when=is_failed), body=answer)
    assert await site.statuses(view, 4) == [200] * 4
    assert await site.statuses(view, 3, path="/?status=403") == [403, 403, 429]


async def test_an_inner_refusal_does_not_count_outside(site: Site) -> None:
    outer = limit_window(1, per="1h", count_when=is_failed, name="outer")
    view = site.view(outer, limit_window(1, per="1h", name="inner"), body=answer)
    assert await site.statuses(view, 3) == [200, 429, 429]
    with no_limits():
        assert await site.statuses(view, 1, path="/?status=403") == [403]


def test_never_more_than_the_limit_reach_the_view_at_once() -> None:
    inside, most = 0, 0
    lock, release = threading.Lock(), threading.Event()

    def slow(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        release.wait(20)
        return HttpResponse(status=403)

    view = limit_window(3, per="1h", count_when=is_failed)(slow)
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(view(sync_requests.get("/")).status_code)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    while len(statuses) < 5:
        time.sleep(0.01)
    release.set()
    for thread in threads:
        thread.join()
    assert (sorted(statuses), most) == ([403] * 3 + [429] * 5, 3)


async def test_a_cancelled_async_view_does_not_count() -> None:
    started = asyncio.Event()

    async def hang(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if "hang" in request.GET:
            started.set()
            await asyncio.sleep(60)
        return HttpResponse(status=403)

    site = Site(True)
    view = site.view(limit_window(1, per="1h", count_when=is_failed), body=hang)
    task = asyncio.ensure_future(site.get(view, "/?hang"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await site.statuses(view, 2) == [403, 429]


# --- block=False ---


async def test_the_view_decides(site: Site) -> None:
    def body(request: Any, **kwargs: Any) -> HttpResponse:
        limits = request.limits
        assert [result.limit.label for result in limits] == ["captcha"]
        return HttpResponse("captcha" if limits.exceeded else "form", headers={"X-After": str(limits.retry_after)})

    view = site.view(limit_window(2, per="1h", block=False, name="captcha"), body=body)
    responses = [await site.get(view) for _ in range(4)]
    assert [response.content for response in responses] == [b"form", b"form", b"captcha", b"captcha"]
    assert {response.status_code for response in responses} == {200}
    assert float(responses[0]["X-After"]) == 0
    assert 0 < float(responses[-1]["X-After"]) <= 7200


@pytest.mark.parametrize("options", [{"methods": ["POST"]}, {"exempt": lambda request: True}, {"key": lambda _: None}])
async def test_the_view_decides_where_no_limit_applies(site: Site, options: Any) -> None:
    def body(request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("captcha" if request.limits.exceeded else "form")

    for decorator in (limit_window(1, per="1h", block=False, **options), limit_window(rate=rate_of, block=False)):
        view = site.view(decorator, body=body)
        assert [(await site.get(view)).content for _ in range(3)] == [b"form"] * 3


def rate_of(request: Any) -> None:
    return None


async def test_limits_with_block_false_change_no_other_decision(site: Site) -> None:
    bucket = LeakyBucket(1 / 3600, burst=1, prefix="advice:", name="advice")
    seen = []

    def body(request: Any, **kwargs: Any) -> HttpResponse:
        seen.append([result.decision.allowed for result in request.limits])
        return HttpResponse()

    view = site.view(
        limit(bucket, block=False),
        limit_rate("1/h", capacity=1, max_wait=0, block=False),
        limit_window(3, per="1h"),
        body=body,
    )
    assert await site.statuses(view, 5) == [200, 200, 200, 429, 429]
    assert seen == [[True, True], [True, False], [False, False]]


async def test_a_view_that_decides_can_count_only_failures(site: Site) -> None:
    seen = []

    def body(request: Any, **kwargs: Any) -> HttpResponse:
        seen.append(request.limits.exceeded)
        return answer(request)

    view = site.view(limit_window(1, per="1h", block=False, count_when=is_failed), body=body)
    await site.statuses(view, 2)
    await site.statuses(view, 2, path="/?status=403")
    assert seen == [False, False, False, True]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: limit_window(1, per=1, count_when=403), "count_when"),
        (lambda: limit_conn(1, count_when=is_failed), "A concurrency limit has no count_when"),
        (lambda: limit_window(1, per=1, blok=False), "Did you mean 'block'"),
    ],
)
def test_wrong_options(wrong: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        wrong()


def test_a_bucket_that_never_waits_can_be_undone() -> None:
    bucket, other = TokenBucket("1/h", 2, max_wait=0, store=LocalStore()), LeakyBucket(1, 5, store=LocalStore())
    assert combine([bucket, other], ["a", "a"]).allowed
    assert bucket.uncommit("a")
    assert [bucket.hit("a").allowed for _ in range(3)] == [True, True, False]


def refunding(request: HttpRequest, **kwargs: Any) -> Any:
    refund, arefund = request.limits.refund, request.limits.arefund  # type: ignore[attr-defined]
    exceeded = request.limits.exceeded  # type: ignore[attr-defined]
    response = HttpResponse(status=429 if exceeded else 200)
    if "refund" not in request.GET:
        return response
    if "async" not in request.GET:
        refund()
        refund()
        return response

    async def answer_later() -> HttpResponse:
        await arefund()
        await arefund()
        return response

    return answer_later()


@pytest.mark.parametrize("limit_of", LIMITS)
async def test_a_view_refunds_a_request_once(site: Site, limit_of: Any) -> None:
    view = site.view(limit_of(block=False), body=refunding)
    path = "/?refund&async" if site.asynchronous else "/?refund"
    assert await site.statuses(view, 5, path=path) == [200] * 5
    assert await site.statuses(view, 2) == [200] * 2
    assert (await site.statuses(view, 2))[-1] == 429
    assert await site.statuses(view, 1, path=path) == [429]
    assert await site.statuses(view, 1, path=path) == [429]


async def test_a_refund_returns_the_whole_cost(site: Site) -> None:
    path = "/?refund&async" if site.asynchronous else "/?refund"
    view = site.view(limit_window(6, per="1h", cost=lambda request: 3, block=False), body=refunding)
    assert await site.statuses(view, 1) == [200]
    assert await site.statuses(view, 3, path=path) == [200] * 3
    assert await site.statuses(view, 2) == [200, 429]


@pytest.mark.parametrize("counts", [False, True])
async def test_a_request_is_refunded_once_whether_it_counts_or_not(site: Site, counts: bool) -> None:
    limiter = FixedWindow(9, 3600, prefix="refunded:")
    limiter.hit("192.0.2.1", 4)
    path = "/?refund&async" if site.asynchronous else "/?refund"
    view = site.view(limit(limiter, block=False, count_when=lambda response: counts), body=refunding)
    assert await site.statuses(view, 2, path=path) == [200, 200]
    assert limiter.peek("192.0.2.1").remaining == 9 - 4
