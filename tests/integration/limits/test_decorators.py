"""Limits on views: functions, methods and classes, sync and async."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.http import HttpRequest, HttpResponse
from django.template import TemplateDoesNotExist
from django.test import override_settings
from django.utils.decorators import method_decorator
from django.views import View

from resty_django.cache import cache_view, cached
from resty_django.limits import FixedWindow, LeakyBucket, Limited, LocalStore, TokenBucket, limited
from resty_django.limits.callers.keys import make
from resty_django.limits.decorators import (
    limit,
    limit_conn,
    limit_count,
    limit_rate,
    limit_rate_either,
    limit_req,
    limit_window,
)
from resty_django.limits.limiters.units import refill_of
from resty_django.limits.policies import registry
from resty_django.limits.quotas.quota import Quota
from resty_django.limits.refusals import request_refused
from resty_django.limits.requests.declared import DeclaredLimit, DecoratorOptions, LimiterSpec, RequestOptions
from resty_django.limits.requests.enforcer import Enforcer
from resty_django.limits.requests.request_limit import LimitOptions, RequestLimit
from resty_django.lock import locked
from resty_django.shdict import shdicts
from tests.dictionaries import Clock

from .view_tools import Site, async_requests, heard, on_dead_redis, sync_requests

HOUR = "1/h"


@pytest.fixture(autouse=True)
def _store(request: pytest.FixtureRequest) -> None:
    if "limits_store" not in request.fixturenames:
        request.getfixturevalue("empty_limits")


@pytest.mark.parametrize(
    ("decorator", "passing"),
    [
        (limit_req(HOUR, burst=2, nodelay=True), 3),
        (limit_count(3, per="1h"), 3),
        (limit_window(3, per="365d"), 3),
        (limit_rate(HOUR, capacity=3), 3),
    ],
    ids=["req", "count", "window", "rate"],
)
async def test_a_client_may_send_as_many_requests_as_the_limit_allows(
    site: Site, limits_store: str, decorator: Any, passing: int
) -> None:
    view = site.view(decorator)
    assert await site.statuses(view, passing + 2) == [200] * passing + [429] * 2
    assert await site.statuses(view, 1, ip="192.0.2.2") == [200]


@pytest.mark.django_db(transaction=True)
async def test_states_of_token_buckets_expire(site: Site, limits_store: str, declared: Any) -> None:
    """The store deletes a bucket some time after it is full: after an hour and a little more."""
    declared("tests.bucket", "token_bucket", interval="1h", capacity=1)
    await registry.aload_policies()
    for decorator in (limit_rate("3/h"), limit_rate_either("3/h", "2/h"), limit("tests.bucket")):
        store = shdicts["limits"]
        store.flush_all()
        assert await site.statuses(site.view(decorator), 1) == [200]
        ttls = [store.ttl(key) for key in store.get_keys() if not key.startswith("resty:stats:")]
        assert ttls
        assert all(3600 < ttl < 4000 for ttl in ttls)


async def test_several_rates_ask_for_their_common_key_once(site: Site, limits_store: str) -> None:
    asked: list[Any] = []

    def key(request: Any) -> str | None:
        asked.append(request)
        return None if request.META["REMOTE_ADDR"] == "192.0.2.2" else "one"

    view = site.view(limit_count("2/h;3/d", key=key))
    assert await site.statuses(view, 3) == [200, 200, 429]
    assert await site.statuses(view, 1, ip="192.0.2.2") == [200]
    assert len(asked) == 4


async def test_headers_of_what_passes_and_of_what_does_not(site: Site, limits_store: str) -> None:
    view = site.view(limit_count(2, per="1h"))
    first = await site.get(view)
    assert first.content == b"done"
    assert first["RateLimit"] == '"count-ip";r=1;t=3600'
    assert first["RateLimit-Policy"] == '"count-ip";q=2;w=3600'
    assert (first["X-RateLimit-Limit"], first["X-RateLimit-Remaining"]) == ("2", "1")
    assert "Retry-After" not in first
    await site.get(view)
    refused = await site.get(view)
    assert refused["X-RateLimit-Remaining"] == "0"
    assert 3590 <= int(refused["Retry-After"]) <= 3600
    assert refused["RateLimit"] == f'"count-ip";r=0;t={refused["Retry-After"]}'
    assert refused["Cache-Control"] == "no-store"


async def test_the_page_is_a_template_of_the_site(site: Site, tmp_path: Any) -> None:
    (tmp_path / "busy.html").write_text("{{ status }} {{ retry_after }} {{ request.path }}")
    templates = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [tmp_path]}]
    templates[0]["OPTIONS"] = {"context_processors": ["django.template.context_processors.request"]}  # type: ignore[assignment]
    settings = {"LIMITS": {"TEMPLATE": "busy.html", "STATUS": 503}}
    view = site.view(limit_count(1, per="1h"))
    with override_settings(TEMPLATES=templates, RESTY_DJANGO=settings):
        await site.get(view, path="/<b>")
        page = await site.get(view, path="/<b>", headers={"Accept": "text/html"})
    assert page.status_code == 503
    assert page.content.decode() == f"503 {page['Retry-After']} /&lt;b&gt;"


@pytest.mark.parametrize("templates", [[], [{"BACKEND": "django.template.backends.django.DjangoTemplates"}]])
async def test_a_page_is_built_in_where_no_template_is_found(site: Site, templates: Any) -> None:
    view = site.view(limit_count(1, per="1h"))
    with override_settings(TEMPLATES=templates):
        await site.get(view)
        page = await site.get(view, headers={"Accept": "text/html"})
    assert (page.status_code, page["Content-Type"]) == (429, "text/html; charset=utf-8")
    text = page.content.decode()
    assert "<h1>Too many requests</h1>" in text
    assert f"Please try again in {page['Retry-After']} seconds." in text
    assert "style" not in text
    assert "script" not in text


async def test_a_template_of_the_site_replaces_the_built_in_page(site: Site, tmp_path: Any) -> None:
    (tmp_path / "resty_limits").mkdir()
    (tmp_path / "resty_limits" / "429.html").write_text("Later.")
    view = site.view(limit_count(1, per="1h"))
    templates = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [tmp_path]}]
    with override_settings(TEMPLATES=templates):
        await site.get(view)
        page = await site.get(view, headers={"Accept": "text/html"})
        assert page.content == b"Later."
    (tmp_path / "resty_limits" / "429.html").write_text("{% extends 'gone.html' %}")
    # Other settings, since a loader keeps its templates.
    with override_settings(TEMPLATES=templates), pytest.raises(TemplateDoesNotExist, match="gone"):
        await site.get(view, headers={"Accept": "text/html"})


async def test_a_wrong_name_of_the_template_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    view = site.view(limit_count(1, per="1h"))
    with override_settings(RESTY_DJANGO={"LIMITS": {"TEMPLATE": "gone.html"}}):
        await site.get(view)
        page = await site.get(view, headers={"Accept": "text/html"})
    assert b"<h1>Too many requests</h1>" in page.content
    assert "The template gone.html of LIMITS does not exist" in caplog.text


async def test_a_refusal_has_the_status_of_the_option(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", status=503))
    assert await site.statuses(view, 2) == [200, 503]
    with pytest.raises(ValueError, match="status of a limit"):
        limit_count(1, per="1h", status=200)


# --- who shares what ---


async def test_views_without_names_have_separate_limits(site: Site) -> None:
    decorator = limit_count(1, per="1h")
    views = [site.view(decorator), site.view(decorator), site.view(limit_count(1, per="1h"))]
    assert [await site.statuses(view, 2) for view in views] == [[200, 429]] * 3


async def test_views_with_the_same_name_share_a_limit(site: Site) -> None:
    views = [site.view(limit_count(2, per="1h", name="api")) for _ in range(2)]
    assert [await site.statuses(view, 1) for view in views] == [[200], [200]]
    assert [await site.statuses(view, 1) for view in views] == [[429], [429]]


async def test_stacked_limits_have_separate_counts(site: Site) -> None:
    """Two of a kind by one key: neither counts for the other, and each asks in its turn."""
    view = site.view(limit_count(4, per="1h"), limit_count(2, per="2h"))
    assert await site.statuses(view, 5) == [200, 200, 429, 429, 429]
    response = await site.get(view)
    assert response["RateLimit"].startswith('"count-ip";r=0;t=')


async def test_the_outer_limit_spares_the_inner_one(site: Site) -> None:
    outer, inner = limit_count(1, per="1h", name="outer"), limit_count(5, per="1h", name="inner")
    view = site.view(outer, inner)
    first = await site.get(view)
    assert first["RateLimit"] == '"outer";r=0;t=3600, "inner";r=4;t=3600'
    assert first["X-RateLimit-Limit"] == "1"
    await site.statuses(view, 3)
    assert await site.statuses(site.view(inner), 5) == [200, 200, 200, 200, 429]


async def test_each_kind_of_key_has_separate_counts(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", key="ip+arg:pk"))
    for pk in (1, 2):
        assert await site.statuses(view, 2, kwargs={"pk": pk}) == [200, 429]
    view = site.view(limit_count(1, per="1h", key="header:X-Api-Key"))
    for token in ("a", "b", "x" * 10_000, "\x7f"):
        assert await site.statuses(view, 2, headers={"X-Api-Key": token}) == [200, 429]
    assert await site.statuses(view, 2) == [200, 429]
    view = site.view(limit_count(1, per="1h", key="user_or_ip"))
    for user in (User(pk=1), User(pk=2), AnonymousUser()):
        assert await site.statuses(view, 2, user=user) == [200, 429]
    view = site.view(limit_count(1, per="1h", key=lambda request: request.META.get("HTTP_X_TENANT")))
    assert await site.statuses(view, 3) == [200, 200, 200]
    assert await site.statuses(view, 2, headers={"X-Tenant": "blue"}) == [200, 429]


# --- which requests ---


async def test_a_request_may_cost_several_units(site: Site, limits_store: str) -> None:
    view = site.view(limit_count(10, per="1h", cost=4))
    assert await site.statuses(view, 3) == [200, 200, 429]
    view = site.view(limit_count(10, per="1h", cost=lambda request: int(request.GET["n"])))
    assert await site.statuses(view, 1, path="/?n=9") == [200]
    assert await site.statuses(view, 2, path="/?n=1") == [200, 429]


async def test_only_the_named_methods_are_limited(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", methods=["post"]))
    assert await site.statuses(view, 3) == [200, 200, 200]
    assert await site.statuses(view, 2, method="POST") == [200, 429]
    with pytest.raises(TypeError, match=r"methods.*\['POST'\]"):
        limit_count(1, per="1h", methods="POST")


def test_the_name_of_the_state_does_not_change_between_versions() -> None:
    """A new name would reset the counts of all clients during an upgrade."""
    declared = DeclaredLimit.of(limit_count, "count", {"methods": ["get"]})
    limit = declared.for_view("shop.views.search", LimiterSpec(FixedWindow, (5, 60.0)))
    assert limit.limiter.prefix == "view:shop.views.search:count:63eda02e:"


async def test_a_limit_for_get_holds_for_head_too(site: Site) -> None:
    view = site.view(limit_count(2, per="1h", methods=["get"]))
    assert await site.statuses(view, 1) == [200]
    assert await site.statuses(view, 2, method="HEAD") == [200, 429]
    assert await site.statuses(view, 1) == [429]
    assert await site.statuses(view, 1, method="POST") == [200]
    view = site.view(limit_count(1, per="1h", methods=["HEAD"]))
    assert await site.statuses(view, 2) == [200, 200]


async def test_only_requests_for_which_when_is_true_are_limited(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", when=lambda request: "slow" in request.GET))
    assert await site.statuses(view, 2) == [200, 200]
    assert await site.statuses(view, 2, path="/?slow") == [200, 429]


async def test_exemptions_by_network_and_function(site: Site) -> None:
    view = site.view(
        limit_count(1, per="1h", exempt_networks=["10.0.0.0/8"], exempt=lambda request: "free" in request.GET)
    )
    assert await site.statuses(view, 3, ip="10.1.2.3") == [200] * 3
    assert await site.statuses(view, 3, path="/?free") == [200] * 3
    assert await site.statuses(view, 2) == [200, 429]
    with override_settings(RESTY_DJANGO={"LIMITS": {"EXEMPT_NETWORKS": ["192.0.2.0/24"]}}):
        assert await site.statuses(view, 2) == [200, 200]
    assert await site.statuses(view, 1) == [429]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_exemptions_by_permission(asynchronous: bool) -> None:
    site = Site(asynchronous)
    view = site.view(limit_count(1, per="1h", exempt_permissions=["auth.add_user", "auth.view_user"]))
    plain, allowed = User.objects.create_user("plain"), User.objects.create_user("allowed")
    allowed.user_permissions.add(Permission.objects.get(codename="view_user"))
    visitor = AnonymousUser()

    async def ask() -> list[list[int]]:
        return [
            await site.statuses(view, 2, user=user, ip=user.username or "::1") for user in (plain, allowed, visitor)
        ]

    if asynchronous:
        results = asyncio.run(ask())
    else:
        results = [
            [view(request_of(user, user.username or "::1")).status_code for _ in range(2)]
            for user in (plain, allowed, visitor)
        ]
    assert results == [[200, 429], [200, 200], [200, 429]]


def request_of(user: Any, ip: str) -> HttpRequest:
    request = sync_requests.get("/", REMOTE_ADDR=ip)
    request.user = user
    return request


async def test_options_may_be_read_once_only(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", methods=iter(["GET"]), exempt_networks=(text for text in ["10.0.0.0/8"])))
    assert await site.statuses(view, 2) == [200, 429]
    assert await site.statuses(view, 2, method="POST") == [200, 200]
    assert await site.statuses(view, 2, ip="10.0.0.1") == [200, 200]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"exempt_networks": "10.0.0.0/8"}, "exempt_networks of a limit must be a list"),
        ({"exempt_networks": ["10/99"]}, "10/99"),
        ({"exempt_permissions": ["boss"]}, 'as in "shop.add_order"'),
        ({"key": "nothing"}, "is not a key"),
        ({"max_delay": -1}, "max_delay of a limit"),
        ({"on_error": "maybe"}, "on_error"),
    ],
)
def test_wrong_options_raise_when_the_view_is_decorated(options: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        limit_count(1, per="1h", **options)


DECORATORS: list[Any] = [
    pytest.param(lambda **options: limit_req("1/h", **options), id="limit_req"),
    pytest.param(lambda **options: limit_count(1, per="1h", **options), id="limit_count"),
    pytest.param(lambda **options: limit_window(1, per="1h", **options), id="limit_window"),
    pytest.param(lambda **options: limit_conn(1, **options), id="limit_conn"),
    pytest.param(lambda **options: limit_rate("1/h", **options), id="limit_rate"),
    pytest.param(lambda **options: limit_rate_either("1/h", "1/h", **options), id="limit_rate_either"),
    pytest.param(lambda **options: limit(LeakyBucket(1), **options), id="limit"),
]
OPTIONS: dict[str, Any] = {
    "key": "all",
    "cost": 1,
    "methods": ["POST"],
    "when": bool,
    "exempt": bool,
    "exempt_networks": ["10.0.0.0/8"],
    "exempt_permissions": ["auth.add_user"],
    "status": 503,
    "dry_run": True,
    "block": False,
    "count_when": bool,
    "max_delay": 1,
    "ban": "1h",
    "ban_after": 3,
    "ban_within": "10m",
    "max_ban": "1d",
    "ban_memory": "2d",
}
OF_LIMITERS: dict[str, Any] = {"name": "tests", "store": LocalStore(), "on_error": "closed"}


@pytest.mark.parametrize("decorator", DECORATORS)
def test_an_option_that_is_misspelt_is_an_error_with_the_nearest_name(decorator: Any) -> None:
    for option, value in {**OPTIONS, **OF_LIMITERS}.items():
        for misspelt in (option[:-1], option[0] + option[2:], f"{option}s"):
            message = rf"@limit\w*\(\) has no option '{misspelt}'\. (Did you mean '\w+'\?|Use )"
            with pytest.raises(TypeError, match=message):
                decorator(**{misspelt: value})


@pytest.mark.parametrize("decorator", DECORATORS)
def test_each_option_is_taken(decorator: Any, request: pytest.FixtureRequest) -> None:
    """One by one, so that this list equals the list in the code; `@limit` rejects the options of limiters."""
    for option, value in OPTIONS.items():
        if (option, request.node.callspec.id) != ("count_when", "limit_conn"):  # a slot is held until the end
            decorator(**{"ban": "1h", option: value} if "ban" in option else {option: value})
    assert set(OPTIONS) == set(RequestOptions.__annotations__)
    assert {*OPTIONS, *OF_LIMITERS} == set(DecoratorOptions.__annotations__)
    for option, value in OF_LIMITERS.items():
        if request.node.callspec.id == "limit":
            with pytest.raises(TypeError, match="Set it where you create the limiter"):
                decorator(**{option: value})
        else:
            decorator(**{option: value})


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: limit_req("1/h", method=["POST"]), "Did you mean 'methods'"),
        (lambda: limit_req("1/h", on_eror="closed"), "Did you mean 'on_error'"),
        (lambda: limit_req("1/h", nodely=True), "Did you mean 'nodelay'"),
        (lambda: limit_rate("1/h", maxwait=1), "Did you mean 'max_wait'"),
        (lambda: limit_conn(1, leese=1), "Did you mean 'lease'"),
        (lambda: limit_count(1, per="1h", zzz=1), "Use per, ban, ban_after"),
        (lambda: limit("checkout", methods=["POST"]), "methods has no effect on the policies of @limit"),
    ],
)
def test_the_nearest_name_is_an_option_or_a_number_of_the_decorator(wrong: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        wrong()


def test_wrong_numbers_raise_when_the_view_is_decorated() -> None:
    for wrong in (
        lambda: limit_req("fast"),
        lambda: limit_req("1/s", burst=-1),
        lambda: limit_count(0, per="1h"),
        lambda: limit_count(1, per="often"),
        lambda: limit_conn(0),
        lambda: limit_rate("1/s", max_wait=-1),
        lambda: limit(),
        lambda: limit(7),  # type: ignore[arg-type]
    ):
        with pytest.raises((ValueError, TypeError)):
            wrong()


# --- delays ---


async def test_a_queued_request_sleeps_in_an_async_view_and_not_in_a_sync_view(site: Site) -> None:
    view = site.view(limit_req("10/s", burst=5))
    began = time.monotonic()
    assert await site.statuses(view, 4) == [200] * 4
    took = time.monotonic() - began
    assert (took >= 0.25) == site.asynchronous


async def test_sleeping_blocks_no_other_task() -> None:
    site = Site(True)
    view = site.view(limit_req("4/s", burst=5))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    assert await asyncio.gather(*(site.statuses(view, 1) for _ in range(4))) == [[200]] * 4
    assert time.monotonic() - began >= 0.7
    assert ticks >= 10
    ticking.cancel()


async def test_a_sync_view_sleeps_with_max_delay() -> None:
    site = Site(False)
    for view, settings in (
        (site.view(limit_req("10/s", burst=5, max_delay=1)), {}),
        (site.view(limit_req("10/s", burst=5)), {"LIMITS": {"MAX_DELAY": 1}}),
    ):
        with override_settings(RESTY_DJANGO=settings):
            began = time.monotonic()
            assert await site.statuses(view, 4) == [200] * 4
            assert time.monotonic() - began >= 0.25


async def test_no_view_sleeps_longer_than_max_delay_and_none_is_refused_for_that(site: Site) -> None:
    view = site.view(limit_req("1/m", burst=5, max_delay=0.05))
    began = time.monotonic()
    assert await site.statuses(view, 7) == [200] * 6 + [429]
    assert 0.2 <= time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("options", "delays"),
    [
        # excess of the six requests that come at once: 0 to 5; the rate is 5 a second
        ({}, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ({"nodelay": True}, [0, 0, 0, 0, 0, 0]),
        ({"undelayed": 3}, [0, 0, 0, 0, 0.2, 0.4]),
        ({"undelayed": 9}, [0, 0, 0, 0, 0, 0]),
    ],
    ids=["burst=5", "burst=5 nodelay", "burst=5 delay=3", "burst=5 delay=9"],
)
def test_the_delays_of_nginx(options: dict[str, Any], delays: list[float]) -> None:
    clock = Clock()
    bucket = LeakyBucket(5, 5, store=LocalStore(), clock=clock)
    enforcer = Enforcer([RequestLimit("x", bucket, LimitOptions(key=make("ip"), **options))])
    delays_measured = []
    for _ in delays:
        check = enforcer.check(sync_requests.get("/"), {})
        assert check is not None
        assert check.refused is None
        delays_measured.append(check.delay)
    assert delays_measured == pytest.approx(delays)
    refused = enforcer.check(sync_requests.get("/"), {})
    assert refused is not None
    assert refused.refused is not None
    clock.advance(0.2)
    late_check = enforcer.check(sync_requests.get("/"), {})
    assert late_check is not None
    assert late_check.delay == pytest.approx(delays[-1])


def test_the_delay_of_several_is_the_longest_that_is_left() -> None:
    clock = Clock()
    store = LocalStore()
    fast = RequestLimit("fast", LeakyBucket(10, 9, store=store, prefix="f", clock=clock), LimitOptions(key=make("ip")))
    slow = RequestLimit(
        "slow", LeakyBucket(2, 9, store=store, prefix="s", clock=clock), LimitOptions(key=make("ip"), undelayed=2)
    )
    enforcer = Enforcer([fast, slow])
    checks = [enforcer.check(sync_requests.get("/"), {}) for _ in range(4)]
    assert [check.delay for check in checks if check] == pytest.approx([0, 0.1, 0.2, 0.5])


# --- several at once ---


async def test_several_limits_decide_together(site: Site, limits_store: str) -> None:
    """The other limits do not count a request that one limit refuses."""
    wide = limit_count(3, per="1h", name="wide")
    buckets = [LeakyBucket(1 / 3600, burst, prefix=f"{burst}:", name=f"b{burst}") for burst in (4, 1)]
    view = site.view(limit(*buckets))
    first = await site.get(view)
    assert first["RateLimit-Policy"] == '"b1";q=2;w=7200, "b4";q=5;w=18000'
    assert first["X-RateLimit-Remaining"] == "1"
    quick = site.view(limit(*buckets, max_delay=0))
    assert await site.statuses(quick, 4) == [200, 429, 429, 429]
    assert buckets[0].peek("192.0.2.1").remaining == 3
    assert await site.statuses(site.view(wide), 4) == [200, 200, 200, 429]


async def test_either_bucket_is_enough(site: Site, limits_store: str) -> None:
    view = site.view(limit_rate_either("3/h", "2/h"))
    assert await site.statuses(view, 4, ip="192.0.2.1") == [200, 200, 200, 429]
    assert await site.statuses(view, 3, ip="192.0.2.2") == [200, 200, 429]
    refused = await site.get(view, ip="192.0.2.2")
    assert refused["RateLimit-Policy"].count(";q=") == 2
    assert (await site.get(view, ip="192.0.2.3"))["RateLimit"] == '"each-ip";r=1;t=1800'


async def test_a_dry_run_lets_requests_pass_and_logs_refusals(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    view = site.view(limit_count(1, per="1h", dry_run=True, name="trial"))
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        assert await site.statuses(view, 3) == [200, 200, 200]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["would be refused by trial"] * 2
    assert "RateLimit" not in await site.get(view)


async def test_either_bucket_in_a_dry_run(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    view = site.view(limit_rate_either("2/h", "1/h", dry_run=True))
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        assert await site.statuses(view, 2) == [200, 200]
        assert not caplog.records
        assert await site.statuses(view, 1) == [200]
    assert len(caplog.records) == 2


# --- the store is down ---


@pytest.mark.redis
@pytest.mark.parametrize(
    ("on_error", "statuses"), [("open", [200] * 3), ("closed", [429] * 3), ("local", [200, 200, 429])]
)
async def test_a_store_that_is_down(site: Site, on_error: str, statuses: list[int]) -> None:
    with on_dead_redis("limits", ON_ERROR=on_error):
        view = site.view(limit_count(2, per="1h"), limit_conn(2, lease="1m"))
        responses = [await site.get(view) for _ in range(3)]
    assert [response.status_code for response in responses] == statuses
    assert not any("RateLimit" in response for response in responses)
    assert all(("Retry-After" in response) == (response.status_code == 429) for response in responses)


# --- policies ---


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch, db: None) -> Any:
    def declare(name: str, algorithm: str, **values: Any) -> None:
        registry.declare_policy(name, algorithm, **values)
        names.append(name)

    names: list[str] = []
    registry.forget_policies()
    yield declare
    for name in names:
        registry.withdraw_policy(name)
    registry.forget_policies()


def test_a_policy_by_its_name(declared: Any) -> None:
    declared("tests.two", "fixed_window", limit=2, window="1h", key="path", methods="GET", status=503)
    site = Site(False)
    view = site.view(limit("tests.two"))
    request = sync_requests.get("/here")
    assert [view(request).status_code for _ in range(3)] == [200, 200, 503]
    assert view(sync_requests.get("/there")).status_code == 200
    assert view(sync_requests.post("/here")).status_code == 200
    assert view(sync_requests.head("/here")).status_code == 503
    registry.declare_policy("tests.two", "fixed_window", limit=3, window="1h", key="path", mode="off")
    assert [view(request).status_code for _ in range(3)] == [200, 200, 200]
    registry.declare_policy("tests.two", "fixed_window", limit=1, window="1h", key="all")
    assert [view(request).status_code for _ in range(2)] == [200, 429]
    registry.declare_policy("tests.two", "fixed_window", limit=1, window="1h", key="all", mode="shadow")
    assert view(request).status_code == 200


@pytest.mark.django_db(transaction=True)
async def test_a_policy_on_an_async_view(declared: Any) -> None:
    declared("tests.one", "fixed_window", limit=1, window="1h")
    view = Site(True).view(limit("tests.one"))
    request = async_requests.get("/")
    assert [(await view(request)).status_code for _ in range(2)] == [200, 429]


def test_an_unknown_policy_limits_nothing_and_is_logged_once(declared: Any, caplog: pytest.LogCaptureFixture) -> None:
    view = Site(False).view(limit("tests.nowhere"))
    with caplog.at_level(logging.ERROR, "resty_django.limits"):
        assert [view(sync_requests.get("/")).status_code for _ in range(3)] == [200, 200, 200]
    assert [record.getMessage() for record in caplog.records] == [
        "Unknown limit policy 'tests.nowhere': requests that use it are not limited. Add it in the admin, or to "
        'RESTY_DJANGO["LIMITS"]["RULES"].'
    ]


# --- signal and log ---


async def test_a_refusal_is_signalled_and_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def failing(**kwargs: Any) -> None:
        raise RuntimeError("a receiver that fails")

    view = site.view(limit_count(1, per="1h", name="tests"))
    request_refused.connect(failing)
    try:
        with heard(request_refused) as signals, caplog.at_level(logging.WARNING):
            await site.get(view, path="/a\nb")
            refused = await site.get(view, path="/a%0Ab")
    finally:
        request_refused.disconnect(failing)
    assert refused.status_code == 429
    (signal,) = signals
    assert (signal["name"], signal["key"], signal["sender"].__name__) == ("tests", "192.0.2.1", "FixedWindow")
    assert signal["request"].path == "/a\nb"
    assert not signal["decision"]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "resty_django.limits"]
    assert line.startswith("refused by tests: GET /a\\nb of 192.0.2.1; would pass in ")
    assert "\n" not in line


async def test_the_log_contains_the_transaction_id(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def tagged(view: Any) -> Any:
        def sync_view(request: HttpRequest) -> Any:
            request.txid = "01ABC"  # type: ignore[attr-defined]
            return view(request)

        async def async_view(request: HttpRequest) -> Any:
            return await sync_view(request)

        return async_view if site.asynchronous else sync_view

    view = site.view(tagged, limit_count(1, per="1h"))
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        await site.statuses(view, 2)
    assert caplog.records[-1].getMessage().endswith("[01ABC]")


# --- classes and methods ---


@method_decorator(limit_count(1, per="1h"), name="dispatch")
class Dispatched(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"done")


class Inherited(Dispatched):
    pass


@method_decorator(limit_count(1, per="1h"), name="dispatch")
class AsyncDispatched(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"done")


class ByMethod(View):
    @method_decorator(limit_count(1, per="1h"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"done")

    @limit_count(2, per="1h", key="arg:pk")
    def post(self, request: HttpRequest, pk: int = 0) -> HttpResponse:
        return HttpResponse(b"done")


class AsyncByMethod(View):
    @limit_count(1, per="1h")
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(b"done")


def test_a_decorated_dispatch_limits_all_methods() -> None:
    for cls in (Dispatched, Inherited):
        view = cls.as_view()
        request = sync_requests.get("/")
        assert [view(request).status_code for _ in range(2)] == [200, 429]
    assert Dispatched.as_view()(sync_requests.options("/")).status_code == 429


async def test_async_view_classes_are_limited() -> None:
    for cls in (AsyncDispatched, AsyncByMethod):
        view = cls.as_view()
        assert iscoroutinefunction(view)
        request = async_requests.get("/")
        assert [(await view(request)).status_code for _ in range(2)] == [200, 429]


def test_single_methods_of_view_classes_are_limited() -> None:
    view = ByMethod.as_view()
    assert [view(sync_requests.get("/")).status_code for _ in range(2)] == [200, 429]
    for pk in (1, 2):
        assert [view(sync_requests.post("/"), pk=pk).status_code for _ in range(3)] == [200, 200, 429]


def test_the_results_of_as_view_have_separate_limits() -> None:
    limited_view = limit_count(1, per="1h")
    dispatched, inherited = limited_view(Dispatched.as_view()), limited_view(Inherited.as_view())
    assert dispatched(sync_requests.get("/")).status_code == 200
    assert inherited(sync_requests.get("/")).status_code == 200


def test_a_class_itself_is_not_decorated() -> None:
    with pytest.raises(TypeError, match=r"Dispatched.*@method_decorator"):
        limit_count(1, per="1h")(Dispatched)


def test_a_decorated_view_keeps_its_name_and_attributes() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        """The view."""
        return HttpResponse()

    view.csrf_exempt = True  # type: ignore[attr-defined]
    decorated = limit_req("1/s")(view)
    assert (decorated.__name__, decorated.__doc__) == ("view", "The view.")
    assert decorated.csrf_exempt  # type: ignore[attr-defined]


# --- numbers of token buckets ---


@pytest.mark.parametrize(
    ("rate", "numbers"),
    [
        ("10/s", (100, 10, 1)),
        ("7/s", (1000 / 7, 7, 1)),
        ("300/s", (10 / 3, 300, 1)),
        ("3000/s", (1, 3000, 3)),
        ("300000000/s", (1, 300_000_000, 300_000)),
        ("0.0000001/s", (10_000_000_000, 1, 1)),
        ("5/m", (12_000, 5, 1)),
        ("100/h", (36_000, 100, 1)),
        (0.5, (2000, 1, 1)),
        (20, (50, 20, 1)),
    ],
)
def test_the_numbers_of_a_bucket(rate: str | float, numbers: tuple[float, int, int]) -> None:
    assert refill_of(rate, None) == numbers


def test_a_bucket_is_never_faster_than_its_rate_and_hardly_slower() -> None:
    for count in (1, 3, 7, 13, 60, 99, 128, 333, 600, 777, 999, 1001, 1024, 4321, 60_000):
        for capacity in (None, max(1, count // 1000)):
            numbers = TokenBucket(f"{count}/s", capacity).config
            assert numbers.quantum <= numbers.capacity
            rate = numbers.quantum * 1000 / numbers.interval
            assert 0.9997 * count <= rate <= count * (1 + 1e-9)


# --- functions whose results are not awaited ---


async def coroutine_function(*args: Any) -> Any:
    return None


class Awaited:
    async def __call__(self, *args: Any) -> Any:
        return None


NOT_AWAITED: dict[str, Callable[[Any], Any]] = {
    "exempt": lambda f: limit_count(2, per="1h", exempt=f),
    "when": lambda f: limit_req(HOUR, when=f),
    "count_when": lambda f: limit_window(2, per="1h", count_when=f),
    "key": lambda f: limit_rate(HOUR, key=f),
    "a part of the key": lambda f: limit_conn(2, key=("ip", f)),
    "cost": lambda f: limit_rate_either(HOUR, HOUR, cost=f),
    "exempt of a limiter": lambda f: limit(LeakyBucket(1), exempt=f),
    "key of @limited()": lambda f: limited(HOUR, key=f),
    "anchor": lambda f: Quota("anchored", 1, per="month", anchor=f),
    "key of @locked()": lambda f: locked(f),
    "by": lambda f: cached(by=f),
    "key of @cached()": lambda f: cached(key=f),
    "tags": lambda f: cached(tags=f),
    "key of cache_view": lambda f: cache_view(1, key=f),
    "tags of cache_view": lambda f: cache_view(1, tags=f),
}


@pytest.mark.parametrize(
    "function",
    [coroutine_function, partial(coroutine_function), Awaited()],
    ids=["function", "partial", "object"],
)
@pytest.mark.parametrize("use", NOT_AWAITED.values(), ids=NOT_AWAITED)
def test_a_coroutine_function_is_refused_where_its_result_is_not_awaited(use: Any, function: Any) -> None:
    with pytest.raises(TypeError, match="plain function"):
        use(function)


@pytest.mark.parametrize("name", ["exempt", "when", "count_when", "key", "a part of the key", "cost"])
async def test_a_function_that_returns_a_coroutine_is_an_error(site: Site, name: str) -> None:
    """It is true, so a limit that took it for one would let all requests pass."""
    view = site.view(NOT_AWAITED[name](lambda *args: coroutine_function()))
    with pytest.raises(TypeError, match="coroutine"):
        await site.get(view)


def test_a_key_function_that_returns_a_coroutine_is_an_error() -> None:
    for decorator in (limited(HOUR, key=lambda: coroutine_function()), locked(lambda: coroutine_function())):
        with pytest.raises(TypeError, match="coroutine"):
            decorator(lambda: None)()


# --- names of views ---


def limited_at_two_urls(view: Any, other: Any) -> tuple[Any, Any]:
    first = limit_count(2, per="1h")(view)
    second = limit_count(2, per="1h")(other)
    return first, second


def answer(request: HttpRequest, text: str = "") -> HttpResponse:
    return HttpResponse(text)


class Page(View):
    text = ""

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(self.text)


class Callable_:
    def __call__(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


def loop_of_views() -> tuple[Any, Any]:
    first, second = (limit_count(2, per="1h")(Page.as_view(text=text)) for text in "ab")
    return first, second


TWO: dict[str, Callable[[], tuple[Any, Any]]] = {
    "one class": lambda: limited_at_two_urls(Page.as_view(), Page.as_view()),
    "one class in a loop": loop_of_views,
    "partials": lambda: limited_at_two_urls(partial(answer, text="a"), partial(answer, text="b")),
    "equal partials": lambda: limited_at_two_urls(partial(answer), partial(answer)),
    "lambdas": lambda: limited_at_two_urls(lambda request: HttpResponse(), lambda request: HttpResponse("b")),
    "objects": lambda: limited_at_two_urls(Callable_(), Callable_()),
}


@pytest.mark.parametrize("views", TWO.values(), ids=TWO)
def test_each_view_has_separate_limits(views: Callable[[], tuple[Any, Any]]) -> None:
    statuses = [[view(sync_requests.get("/")).status_code for _ in range(3)] for view in views()]
    assert statuses == [[200, 200, 429]] * 2
    again = [view(sync_requests.get("/")).status_code for view in views()]
    assert again == [429] * 2, "in another process, and after a restart, they have the same names"


def test_functions_without_names_have_separate_limits() -> None:
    one, other = limited("1/h")(lambda: 1), limited("1/h")(lambda: 2)
    assert (one(), other()) == (1, 2)
    partials = [limited("1/h")(partial(int, text)) for text in ("3", "4")]
    assert [function() for function in partials] == [3, 4]
    for function in (one, other, *partials):
        with pytest.raises(Limited):
            function()
