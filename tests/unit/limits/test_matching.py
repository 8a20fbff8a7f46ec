"""Requests that a policy matches."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import ResolverMatch
from django.views import View

from resty_django.limits.policies.matching import Match, dotted, pattern

HERE = __name__


def pay(request: Any) -> HttpResponse:
    return HttpResponse()


class Cart(View):
    pass


def match_of(view: Any, name: str = "pay", namespaces: list[str] | None = None) -> ResolverMatch:
    return ResolverMatch(view, (), {}, name, namespaces=namespaces)


@pytest.mark.parametrize(
    ("text", "fitting", "others"),
    [
        ("/api/*", ["/api/", "/api/a/b"], ["/api", "/x/api/", "/API/"]),
        ("/a", ["/a"], ["/a/", "/ab", ""]),
        ("*", ["", "/", "/a\nb"], []),
        ("/*/edit", ["/1/edit", "/1/2/edit"], ["/edit", "/1/edit/"]),
        ("/a?b[c]", ["/a?b[c]"], ["/aXb[c]", "/aXbc"]),
        ("/a.b", ["/a.b"], ["/aXb"]),
    ],
)
def test_a_star_is_the_only_sign_with_a_meaning(text: str, fitting: list[str], others: list[str]) -> None:
    test = pattern(text)
    assert [path for path in [*fitting, *others] if test(path)] == fitting


@pytest.mark.parametrize(
    ("methods", "fitting"),
    [("", {"GET", "HEAD", "POST"}), ("GET", {"GET", "HEAD"}), ("POST", {"POST"}), ("HEAD", {"HEAD"})],
)
def test_get_includes_head(methods: str, fitting: set[str]) -> None:
    match = Match("/*", "", "", methods)
    factory = RequestFactory()
    assert {name for name in ("GET", "HEAD", "POST") if match.fits(factory.generic(name, "/"), None)} == fitting


def test_many_stars_take_no_time() -> None:
    test = pattern("/" + "*a" * 90)
    started = time.monotonic()
    assert not test("/" + "a" * 5000 + "b" * 5000)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (pay, f"{HERE}.pay"),
        (Cart.as_view(), f"{HERE}.Cart"),
        (functools.partial(functools.partial(pay)), f"{HERE}.pay"),
        (Cart(), f"{HERE}.Cart"),
    ],
)
def test_dotted_names_of_views(view: Any, name: str) -> None:
    assert dotted(view) == name


def test_a_request_has_to_fit_all_that_is_said() -> None:
    request = RequestFactory().post("/shop/pay/")
    match = match_of(pay, namespaces=["shop"])
    for fitting in (
        Match("/shop/*", "", "", ""),
        Match("", "shop:pay", "", ""),
        Match("", "shop:*", "", "POST PUT"),
        Match("", "", f"{HERE}.*", ""),
        Match("/shop/*", "shop:*", f"{HERE}.pay", "POST"),
    ):
        assert fitting.fits(request, match)
    for mismatch in (
        Match("", "", "", ""),
        Match("", "", "", "POST"),
        Match("/shop/*", "", "", "GET"),
        Match("/shop/*", "blog:*", "", ""),
        Match("/shop/*", "", f"{HERE}.Cart", ""),
        Match("", "pay", "", ""),
    ):
        assert not mismatch.fits(request, match)


def test_without_a_resolved_url_only_paths_fit() -> None:
    request = RequestFactory().get("/nowhere/")
    assert Match("/nowhere/", "", "", "").fits(request, None)
    assert not Match("", "*", "", "").fits(request, None)
    assert not Match("", "", "*", "").fits(request, None)
