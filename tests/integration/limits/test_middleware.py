"""Limits before the view: by rules of the settings and policies of the database."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, override_settings
from django.urls import include, path

from resty_django.limits import Concurrency
from resty_django.limits.decorators import limit_count
from resty_django.limits.policies import registry

from .policy_tools import policy_of
from .view_tools import Asking, serving

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "resty_django.limits.middleware.LimitMiddleware",
]

pytestmark = pytest.mark.django_db(transaction=True)


class Broken(Exception):
    pass


def view(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse(b"done")


async def aview(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse(b"done")


def broken(request: HttpRequest) -> HttpResponse:
    raise Broken


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter([b"a", b"b"]))


urls = [
    path("api/items/", view, name="items"),
    path("api/async/", aview, name="async"),
    path("shop/", include(([path("pay/<int:pk>/", view, name="pay"), path("list/", view, name="list")], "shop"))),
    path("broken/", broken),
    path("stream/", stream),
    path("decorated/", limit_count(5, per="1h", name="inner")(view)),
    path("free/", view),
]

Site = Callable[..., None]


@pytest.fixture
def rules(settings: Any, empty_limits: None) -> Iterator[Site]:
    """Set the rules of the site: policies as dicts of their fields."""

    def enter(*declared: dict[str, Any], **section: Any) -> None:
        settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"RULES": declared, **section}}

    with serving(settings, urls, MIDDLEWARE):
        yield enter
    registry.forget_policies()


def rule(name: str, limit: int = 2, **values: Any) -> dict[str, Any]:
    return {"name": name, "algorithm": "fixed_window", "limit": limit, "window": "1h", **values}


@pytest.fixture(params=["sync", "async"])
def asking(request: pytest.FixtureRequest) -> Asking:
    return Asking(request.param == "async")


def test_rules_match_paths(limits_store: str, rules: Site, asking: Asking) -> None:
    rules(rule("api", path="/api/*"))
    assert asking.statuses("/api/items/", 1) == [200]
    assert asking.statuses("/api/async/", 2) == [200, 429]
    assert asking.statuses("/free/", 3) == [200] * 3


def test_rules_match_routes_and_namespaces(rules: Site, asking: Asking) -> None:
    rules(rule("shop", 3, route="shop:*"), rule("pay", 1, route="shop:pay"))
    assert asking.statuses("/shop/pay/1/", 2) == [200, 429]
    assert asking.statuses("/shop/list/", 3) == [200, 200, 429]
    assert asking.statuses("/api/items/", 3) == [200] * 3


def test_rules_match_views_methods_and_arguments(rules: Site, asking: Asking) -> None:
    rules(rule("posts", 1, view=f"{__name__}.*", methods="POST", key="ip+path"))
    assert asking.statuses("/shop/pay/1/", 2) == [200, 200]
    assert asking.statuses("/shop/pay/1/", 2, "post") == [200, 429]
    assert asking.statuses("/shop/pay/2/", 2, "post") == [200, 429]
    rules(rule("args", 1, route="shop:pay", key="arg:pk"))
    assert asking.statuses("/shop/pay/1/", 2) == [200, 429]
    assert asking.statuses("/shop/pay/2/", 2) == [200, 429]


def test_responses_have_the_fields_and_the_status_of_the_rule(rules: Site, asking: Asking) -> None:
    rules(rule("api", 1, path="/api/*", status=503))
    first, refused = asking.responses("/api/items/", 2)
    assert first["RateLimit"] == '"api";r=0;t=3600'
    assert (refused.status_code, refused["RateLimit-Policy"]) == (503, '"api";q=1;w=3600')
    assert refused.json()["violated-policies"] == ["api"]
    assert "RateLimit" not in asking.responses("/free/")[0]


def test_the_limits_of_a_view_come_on_top(rules: Site, asking: Asking) -> None:
    rules(rule("outer", 3, path="/decorated/"))
    first = asking.responses("/decorated/")[0]
    assert first["RateLimit"] == '"outer";r=2;t=3600, "inner";r=4;t=3600'
    assert first["X-RateLimit-Limit"] == "3"
    assert asking.statuses("/decorated/", 3) == [200, 200, 429]


def test_several_rules_decide_together(limits_store: str, rules: Site, asking: Asking) -> None:
    rules(rule("wide", 5, path="/api/*"), rule("narrow", 2, path="/api/items/"))
    assert asking.statuses("/api/items/", 4) == [200, 200, 429, 429]
    assert asking.statuses("/api/async/", 4) == [200, 200, 200, 429]


def test_sessions_that_a_client_makes_up_are_one(rules: Site, asking: Asking) -> None:
    rules(rule("sessions", 2, path="/api/*", key="session"))
    responses = []
    for number in range(4):
        headers = {"Cookie": f"sessionid=madeup{number:026}"}
        responses += asking.statuses("/api/items/", 1, headers=headers)
    assert responses == [200, 200, 429, 429]
    user = User.objects.create_user("someone")
    assert asking.statuses("/api/items/", 3, user=user) == [200, 200, 429]


def test_rules_in_shadow_mode_or_off_refuse_nothing(rules: Site, asking: Asking) -> None:
    rules(rule("seen", 1, path="/api/*", mode="shadow"), rule("gone", 1, path="/api/*", mode="off"))
    responses = asking.responses("/api/items/", 3)
    assert [response.status_code for response in responses] == [200] * 3
    assert "RateLimit" not in responses[0]


def test_slots_are_released(limits_store: str, rules: Site, asking: Asking) -> None:
    rules({"name": "slots", "algorithm": "concurrency", "limit": 1, "path": "/*", "lease": "1h"})
    policy = policy_of("slots")
    limiter = policy.limiter
    assert isinstance(limiter, Concurrency)
    assert asking.statuses("/api/items/", 2) == [200, 200]
    assert asking.statuses("/broken/", 2) == [500, 500]
    assert asking.statuses("/decorated/", 7) == [200] * 5 + [429] * 2
    assert limiter.peek("127.0.0.1").remaining == 1
    decision = limiter.hit("127.0.0.1")
    assert asking.statuses("/api/items/", 2) == [429, 429]
    limiter.leaving("127.0.0.1", token=decision.token)
    assert asking.statuses("/api/items/", 1) == [200]


def test_a_stream_holds_its_slot(rules: Site) -> None:
    rules({"name": "slots", "algorithm": "concurrency", "limit": 1, "path": "/*"})
    response = Client().get("/stream/")
    assert Client().get("/free/").status_code == 429
    assert b"".join(response.streaming_content) == b"ab"  # type: ignore[arg-type]
    assert Client().get("/free/").status_code == 200


def test_a_rule_delays_requests(rules: Site, asking: Asking) -> None:
    rules({"name": "queue", "algorithm": "leaky_bucket", "rate": "10/s", "burst": 5, "path": "/*"}, MAX_DELAY=1)
    began = time.monotonic()
    assert asking.statuses("/free/", 4) == [200] * 4
    assert time.monotonic() - began >= 0.25


def test_what_has_no_view_is_not_limited(rules: Site, asking: Asking) -> None:
    rules(rule("all", 1, path="/*"))
    assert asking.statuses("/nowhere/", 3) == [404] * 3


# --- wrong rules ---


def test_wrong_rules_raise_before_the_first_request(rules: Site) -> None:
    rules(rule("bad", limit=0, path="/*"))
    with pytest.raises(ImproperlyConfigured, match=r"RULES.*policy 'bad': limit"):
        Client().get("/free/")
    (error,) = [message for message in run_checks() if message.id == "resty_limits.E001"]
    assert "policy 'bad': limit" in error.msg


def test_two_rules_of_one_name(rules: Site) -> None:
    rules(rule("twin", path="/*"), rule("twin", path="/a"))
    (error,) = [message for message in run_checks() if message.id == "resty_limits.E001"]
    assert "Two rules have the name 'twin'" in error.msg


def test_rules_that_nobody_asks_for(rules: Site) -> None:
    rules(rule("alone", path="/*"))
    assert not [message for message in run_checks() if message.id == "resty_limits.W001"]
    with override_settings(MIDDLEWARE=MIDDLEWARE[:2]):
        (warning,) = [message for message in run_checks() if message.id == "resty_limits.W001"]
    assert "LimitMiddleware is not in MIDDLEWARE" in warning.msg


SITE_WITHOUT_USERS = """
import sys
import django
from django.conf import settings
from django.core.checks import run_checks
from django.http import HttpResponse
from django.urls import path

LIMITS = {"algorithm": "fixed_window", "limit": 2, "window": "1h"}
RULES = [
    {**LIMITS, "name": "by-user", "key": "user|ip"},
    {**LIMITS, "name": "by-ip"},
    {**LIMITS, "name": "staff", "exempt_groups": "staff"},
]
settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "resty_django", "resty_django.limits"],
    MIDDLEWARE=sys.argv[1:],
    ROOT_URLCONF=__name__,
    RESTY_DJANGO={"LIMITS": {"RULES": RULES}},
)
django.setup()

from resty_django.limits.decorators import limit_count
from resty_django.limits import quota

@limit_count(1, per="1h", key="session|user")
def limited(request): return HttpResponse()

@limit_count(1, per="1h", key="session|ip")
def free(request): return HttpResponse()

@limit_count(1, per="1h", exempt_permissions=["shop.add_order"])
def exempt(request): return HttpResponse()

@quota("exports", 5, per="day")
def export(request): return HttpResponse()

@limit_count(rate=lambda request: "1/h", key="user")
def chosen(request): return HttpResponse()

urlpatterns = [path(view.__name__, view) for view in (limited, free, exempt, export, chosen)]
print(*(message.msg for message in run_checks() if message.id == "resty_limits.W004"))
"""


@pytest.mark.parametrize(
    ("middleware", "said"),
    [
        ([], "in MIDDLEWARE: by-user, staff, __main__.limited, __main__.exempt, __main__.export, __main__.chosen.\n"),
        (["django.contrib.auth.middleware.AuthenticationMiddleware"], "\n"),
    ],
)
def test_limits_by_user_on_a_site_without_users(middleware: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SITE_WITHOUT_USERS, *middleware], capture_output=True, text=True, check=True
    )
    assert done.stdout.rpartition("not ")[2] == said


def test_rules_of_a_wrong_type() -> None:
    for value, text in (
        ("x", "must be a list of dicts"),
        ([1], "an item of type int"),
        ([{1: 2}], "an item of type dict"),
    ):
        with override_settings(RESTY_DJANGO={"LIMITS": {"RULES": value}}):
            (error,) = [message for message in run_checks() if message.id == "resty_django.E002"]
        assert text in error.msg
