"""Responses to clients: the header fields that HEADERS selects, and refusals as problems in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from rest_framework.renderers import BrowsableAPIRenderer, JSONRenderer
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.throttling import BaseThrottle
from rest_framework.views import exception_handler as drf_handler

from resty_django.limits import Quota, forget_quotas, quota
from resty_django.limits.bans.registry import dictionary
from resty_django.limits.decorators import limit_count, limit_rate_either
from resty_django.limits.policies import registry
from resty_django.limits.quotas.throttling import QuotaThrottle
from resty_django.limits.throttling import FixedWindowThrottle, exception_handler
from tests.unit.limits.test_headers import fields

from .view_tools import Site, drf_view, serving

DRAFT = {"RateLimit", "RateLimit-Policy"}
LEGACY = {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
SELECTIONS = {"both": DRAFT | LEGACY, "X-RateLimit": LEGACY}
"""The default and another one; unit/limits/test_headers.py has all."""
PROBLEM = "application/problem+json"
TYPES = "https://iana.org/assignments/http-problem-types#"
JSON = {"Accept": "application/json"}

pytestmark = pytest.mark.usefixtures("empty_limits")

factory = APIRequestFactory()


class Uploads(FixedWindowThrottle):
    rate, key, scope = "1/h", "ip", "uploads"


class Größen(FixedWindowThrottle):
    rate, key = "2/h", "ip"


class Never(FixedWindowThrottle):
    rate, key, scope = "1/h", "ip", "never"
    cost = staticmethod(lambda request: 2)


class LongWait(BaseThrottle):
    """A throttle of another package."""

    def allow_request(self, request: Any, view: Any) -> bool:
        return False

    def wait(self) -> float:
        return 7200.0


def ask(view: Any, **headers: str) -> Any:
    request = factory.get("/", REMOTE_ADDR="192.0.2.1", headers=headers or JSON)
    response = view(request)
    if hasattr(response, "render"):
        response.render()
    return response


def reported(response: Any) -> set[str]:
    return {name for name in response.headers if "ratelimit" in name.lower()}


def problem_of(response: Any, status: int = 429) -> Any:
    """The problem in a refusal, whose members fit to the response."""
    assert (response.status_code, response["Content-Type"]) == (status, PROBLEM)
    problem = json.loads(response.content)
    assert set(problem) == {"type", "title", "status", "detail", "retry_after", "violated-policies"}
    assert problem["status"] == status
    assert response.get("Retry-After") == (None if problem["retry_after"] is None else str(problem["retry_after"]))
    return problem


@pytest.fixture(autouse=True)
def _no_bans() -> Iterator[None]:
    dictionary().flush_all()
    yield
    dictionary().flush_all()


@pytest.fixture
def limits(settings: Any) -> Callable[..., None]:
    """Set settings of limits."""
    site = settings.RESTY_DJANGO

    def enter(**values: Any) -> None:
        settings.RESTY_DJANGO = {**site, "LIMITS": values}

    return enter


@pytest.fixture
def served(settings: Any) -> Iterator[None]:
    """A site with the middleware of limits."""
    urls = [path("items/", lambda request: HttpResponse("done"))]
    with serving(settings, urls, ["resty_django.limits.middleware.LimitMiddleware"]):
        yield
    registry.forget_policies()


# --- header fields ---


@pytest.mark.parametrize("selection", SELECTIONS)
async def test_the_fields_of_decorators(site: Site, limits: Any, selection: str) -> None:
    limits(HEADERS=selection)
    single = site.view(limit_count(1, per="1h"))
    several = site.view(limit_count("1/h;5/d"), limit_count(3, per="1m", name="outer"))
    for view in (single, several):
        passed, refused = await site.get(view), await site.get(view)
        assert (passed.status_code, refused.status_code) == (200, 429)
        assert reported(passed) == reported(refused) == SELECTIONS[selection]
        assert "Retry-After" in refused


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_fields_of_throttles(limits: Any, selection: str) -> None:
    limits(HEADERS=selection)
    view = drf_view(Uploads, Größen)
    passed, refused = ask(view), ask(view)
    assert (passed.status_code, refused.status_code) == (200, 429)
    assert reported(passed) == reported(refused) == SELECTIONS[selection]
    if "RateLimit" in passed.headers:
        assert sorted(fields(passed["RateLimit-Policy"])) == [
            ("Gr%C3%B6%C3%9Fen", {"q": "2", "w": "3600"}),
            ("uploads", {"q": "1", "w": "3600"}),
        ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_fields_of_quotas_and_bans(limits: Any, selection: str) -> None:
    limits(HEADERS=selection)
    forget_quotas()
    view = limit_count(1, per="1h", name="banning", ban="2h")(lambda request: HttpResponse("done"))
    view = quota("exports", 2, per="day", key="ip")(view)
    for status in (200, 429, 429, 429):  # refused by the limit, by its ban, by the quota
        response = ask(view)
        assert (response.status_code, reported(response)) == (status, SELECTIONS[selection])
    forget_quotas()


def test_the_fields_of_the_site_stay(limits: Any) -> None:
    limits(HEADERS="RateLimit")

    def theirs(request: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"X-RateLimit-Limit": "theirs"})

    response = ask(limit_count(1, per="1h")(theirs))
    assert (response["X-RateLimit-Limit"], reported(response)) == ("theirs", {*DRAFT, "X-RateLimit-Limit"})


@pytest.mark.parametrize(
    ("values", "check", "error"),
    [
        (
            {"HEADERS": "ratelimit"},
            "E003",
            'RESTY_DJANGO["LIMITS"]["HEADERS"] must be "both" or "X-RateLimit" or "RateLimit"',
        ),
        ({"HEADERS": "X-Ratelimit"}, "E003", 'Did you mean "X-RateLimit"?'),
        ({"HEADERS": False}, "E002", 'RESTY_DJANGO["LIMITS"]["HEADERS"]'),
        ({"PROBLEM_JSON": "yes"}, "E002", 'RESTY_DJANGO["LIMITS"]["PROBLEM_JSON"]'),
    ],
)
def test_unknown_values_are_errors_of_the_system_check(
    limits: Any, values: dict[str, Any], check: str, error: str
) -> None:
    limits(**values)
    (message,) = [message for message in run_checks(tags=["resty_django"]) if message.is_serious()]
    assert message.id == f"resty_django.{check}"
    assert error in message.msg


# --- problems ---


@pytest.mark.parametrize("always", [False, True])
async def test_problems_of_decorators(site: Site, limits: Any, always: bool) -> None:
    limits(PROBLEM_JSON=always)
    view = site.view(limit_count(1, per="1h", name='größe "1"'))
    await site.get(view)
    refused = await site.get(view, headers=JSON)
    assert refused["Content-Type"] == (PROBLEM if always else "application/json")
    for accept in ("*/*", PROBLEM, "image/png", "", "text/html;q=0.1, */*"):
        problem = problem_of(await site.get(view, headers={"Accept": accept}))
        assert (problem["type"], problem["title"]) == (f"{TYPES}quota-exceeded", "Too many requests")
        assert problem["detail"] == f"Please try again in {problem['retry_after']} seconds."
        assert problem["violated-policies"] == ['gr%C3%B6%C3%9Fe "1"'] == [fields(refused["RateLimit"])[0][0]]
    for accept in ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"):
        page = await site.get(view, headers={"Accept": accept})
        assert page["Content-Type"] == "text/html; charset=utf-8"
        assert page["RateLimit"].startswith('"gr%C3%B6%C3%9Fe \\"1\\"";r=0;t=')


async def test_a_problem_lists_all_limits_that_refuse(site: Site) -> None:
    view = site.view(limit_rate_either("1/h", "1/d"))
    await site.get(view)
    problem = problem_of(await site.get(view))
    assert len(problem["violated-policies"]) == len(set(problem["violated-policies"])) == 2


async def test_a_request_that_can_never_pass(site: Site) -> None:
    problem = problem_of(await site.get(site.view(limit_count(1, per="1h", cost=lambda request: 2))))
    assert (problem["retry_after"], problem["detail"]) == (None, "This request can never pass.")


async def test_the_problem_of_a_ban(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", name="search", ban="2h"))
    await site.get(view)
    assert problem_of(await site.get(view))["type"] == f"{TYPES}quota-exceeded"
    problem = problem_of(await site.get(view))
    assert (problem["type"], problem["title"]) == (f"{TYPES}abnormal-usage-detected", "Too many requests")
    assert 7190 <= problem["retry_after"] <= 7200


@pytest.mark.django_db
def test_the_problem_of_the_login_guard(settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [
        "resty_django.limits.login.LoginGuard",
        "django.contrib.auth.backends.ModelBackend",
    ]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "resty_django.limits.login.LoginGuardMiddleware"]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("login/", log_in)]})
    section = {"PROBLEM_JSON": True, "LOGIN": {"ADDRESS_AND_NAME": "1/15m"}}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": section}
    client = Client(REMOTE_ADDR="198.51.100.77", headers=JSON)
    assert client.get("/login/").status_code == 403
    assert problem_of(client.get("/login/"))["type"] == f"{TYPES}abnormal-usage-detected"


def log_in(request: HttpRequest) -> HttpResponse:
    user = authenticate(request, username="nobody", password="wrong")
    return HttpResponse("welcome" if user else "wrong", status=200 if user else 403)


async def test_the_problem_while_the_store_is_down(site: Site) -> None:
    section = {
        "SHARED_DICTS": {"gone": {"PATH": "/proc/nowhere"}},
        "LIMITS": {"STORE": "gone", "ON_ERROR": "closed", "STATUS": 503},
    }
    with override_settings(RESTY_DJANGO=section):
        problem = problem_of(await site.get(site.view(limit_count(9, per="1h"))), 503)
    assert (problem["type"], problem["title"]) == (f"{TYPES}temporary-reduced-capacity", "Temporarily unavailable")


@pytest.mark.django_db(transaction=True)
def test_problems_of_policies(served: None, limits: Any) -> None:
    rule = {"name": "items", "algorithm": "fixed_window", "limit": 1, "window": "1h", "path": "/items/"}
    limits(PROBLEM_JSON=True, RULES=[rule])
    Client().get("/items/")
    assert problem_of(Client(headers=JSON).get("/items/"))["violated-policies"] == ["items"]


# --- throttles of Django REST framework ---


def test_throttles_answer_like_drf_by_default(limits: Any) -> None:
    view = drf_view(Uploads)
    ask(view)
    refused = ask(view)
    assert (refused.status_code, refused["Content-Type"]) == (429, "application/json")
    assert "Expected available in" in refused.data["detail"]


def test_throttles_answer_with_problems(limits: Any) -> None:
    limits(PROBLEM_JSON=True)
    view = drf_view(Uploads, Größen)
    assert ask(view).status_code == 200
    problem = problem_of(ask(view))
    assert (problem["type"], problem["violated-policies"]) == (f"{TYPES}quota-exceeded", ["uploads"])
    refused = ask(view)
    assert problem_of(refused)["violated-policies"] == ["uploads", "Gr%C3%B6%C3%9Fen"]
    assert refused["Cache-Control"] == "no-store"
    assert refused["Allow"] == "GET, HEAD, OPTIONS"
    assert len(fields(refused["RateLimit"])) == 2


def test_the_longest_wait_counts(limits: Any) -> None:
    limits(PROBLEM_JSON=True)
    view = drf_view(Uploads, LongWait)
    assert problem_of(ask(drf_view(Never)))["retry_after"] is None
    assert "detail" in ask(view).data  # only the throttle of another package has refused
    assert problem_of(ask(view))["retry_after"] == 7200


@pytest.mark.django_db(transaction=True)
def test_quota_throttles_answer_with_problems(limits: Any) -> None:
    forget_quotas()

    class Exports(QuotaThrottle):
        quota = Quota("exports", 1, per="day", key="ip")

    limits(PROBLEM_JSON=True)
    view = drf_view(Exports)
    assert ask(view).status_code == 200
    assert problem_of(ask(view))["violated-policies"] == ["exports"]
    forget_quotas()


def test_other_renderers_use_the_response_of_drf(limits: Any) -> None:
    limits(PROBLEM_JSON=True)
    view = drf_view(Uploads, renderer_classes=(JSONRenderer, BrowsableAPIRenderer))
    ask(view)
    page = ask(view, Accept="text/html")
    assert (page.status_code, page["Content-Type"]) == (429, "text/html; charset=utf-8")
    assert b"Expected available in" in page.content
    assert page["RateLimit-Policy"] == '"uploads";q=1;w=3600'


def test_the_handler_of_a_site_decides(limits: Any) -> None:
    limits(PROBLEM_JSON=True)

    def own(exc: Exception, context: dict[str, Any]) -> Any:
        return Response({"busy": True}, status=503)

    view = drf_view(Uploads, get_exception_handler=lambda self: own)
    ask(view)
    assert ask(view).data == {"busy": True}


def test_the_handler_needs_no_setting() -> None:
    view = drf_view(Uploads, get_exception_handler=lambda self: exception_handler)
    ask(view)
    assert problem_of(ask(view))["violated-policies"] == ["uploads"]
    missing = drf_view(get_exception_handler=lambda self: exception_handler)(factory.post("/"))
    assert (missing.status_code, missing.data) == (405, drf_handler_data("POST"))


def drf_handler_data(method: str) -> Any:
    from rest_framework.exceptions import MethodNotAllowed

    response = drf_handler(MethodNotAllowed(method), {})
    assert response is not None
    return response.data
