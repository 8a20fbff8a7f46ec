"""Conditions of policies on recorded requests: certain where the route decides, else open."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.policies.matching import pattern
from resty_django.limits.policies.routes import Scope, View, path_fits, views_by_route
from resty_django.limits.policies.spec import PolicySpec, from_values

REGEX = r"api/items/(?P<pk>[^/.]+)/$"
VIEWS = {
    "api/items/": View("shop:items", "shop.views.items"),
    "api/items/<int:pk>/": View("shop:item", "shop.views.Item"),
}


@pytest.mark.parametrize(
    ("text", "route", "answer"),
    [
        ("", "api/items/", True),
        ("/api/*", "api/items/", True),
        ("/api/items/", "api/items/", True),
        ("/api/items", "api/items/", False),
        ("/API/*", "api/items/", False),
        ("/api/items/*", "api/items/<int:pk>/", True),
        ("*/", "api/items/<int:pk>/", True),
        ("/api/items/7/", "api/items/<int:pk>/", None),
        ("/api/items/7*", "api/items/<int:pk>/", None),
        ("/api/items/7/sizes/", "api/items/<int:pk>/", False),
        ("/api/items/7/sizes/", "api/items/<path:rest>/", None),
        ("/api/orders/*", "api/items/<int:pk>/", False),
        ("/api/items/*", "<slug:first>/<slug:second>/", None),
        ("/api/items/7/*", "<slug:first>/<slug:second>/", False),
        ("/", "", True),
        ("/", "/", False),
        ("//", "/", True),
        ("//api/*", "/api/<int:pk>", True),
        ("/api/*", "", False),
        ("/api/*/", "<slug:first>/<slug:second>/", None),
        ("/api/items/*", REGEX, True),
        ("/api/items/7/", REGEX, None),
        ("/shop/*", REGEX, False),
        ("/api/items/*", r"^api/items/[0-9]+/$", None),
        ("/api/items/*", None, None),
        ("*", None, None),
    ],
)
def test_a_path_is_compared_with_a_route(text: str, route: str | None, answer: bool | None) -> None:
    assert path_fits(text, route) is answer


ROUTES = st.lists(st.sampled_from(["a", "b", "/", "<int:n>", "<path:p>"]), max_size=6).map("".join)


@given(st.text("ab/*", min_size=1, max_size=6), ROUTES, st.lists(st.text("ab", min_size=1, max_size=2), min_size=6))
def test_the_answer_is_true_for_all_paths_of_a_route(text: str, route: str, values: list[str]) -> None:
    answer = path_fits(text, route)
    remaining = iter(values)
    path = "/" + re.sub("<[^>]*>", lambda placeholder: next(remaining), route)
    if answer is not None:
        assert (pattern(text)(path) is not None) is answer


def scope(saved: dict[str, Any], edited: dict[str, Any]) -> Scope:
    def spec(values: dict[str, Any]) -> PolicySpec:
        return from_values({"name": "p", "algorithm": "fixed_window", "limit": 1, "window": "1h", **values})

    return Scope(spec(saved), spec(edited), VIEWS)


@pytest.mark.parametrize(
    ("saved", "edited", "target", "answer"),
    [
        ({}, {}, "GET api/items/", True),
        ({}, {}, "", True),
        ({"path": "/*"}, {"path": "/api/*"}, "GET ", False),
        ({"path": "/*"}, {"path": "/api/*"}, "", None),
        ({}, {"methods": "POST"}, "GET api/items/", False),
        ({}, {"methods": "GET"}, "HEAD api/items/", True),
        ({}, {"methods": "GET"}, "", None),
        ({"path": "/api/*"}, {"path": "/api/*", "methods": "GET"}, "GET api/items/", True),
        ({"path": "/api/*"}, {"path": "/shop/*"}, "GET api/items/", False),
        ({"path": "/api/*"}, {"path": "/api/items/7/"}, "GET api/items/<int:pk>/", None),
        ({"path": "/api/*"}, {}, "GET api/items/", False),
        ({"path": "/shop/*"}, {"path": "/shop/7/"}, "GET api/items/", True),  # code named the policy
        ({}, {"path": "/shop/*"}, "GET api/items/", True),
        ({"path": "/api/*"}, {"path": "/api/*", "route": "shop:items"}, "GET api/items/", True),
        ({"path": "/api/*"}, {"path": "/api/*", "route": "shop:items"}, "GET api/items/<int:pk>/", False),
        ({"path": "/api/*"}, {"path": "/api/*", "route": "shop:*"}, "GET api/gone/", None),
        ({"path": "/api/*"}, {"view": "shop.views.Item"}, "GET api/items/<int:pk>/", True),
        ({"path": "/api/*"}, {"view": "shop.views.Item"}, "GET api/items/", False),
        ({}, {"exempt_paths": "/api/items/\n/b"}, "GET api/items/", False),
        ({}, {"exempt_paths": "/api/items/\n/b"}, "GET api/orders/", True),
        ({}, {"exempt_paths": "/api/items/7/"}, "GET api/items/<int:pk>/", None),
    ],
)
def test_whether_an_edited_policy_applies(
    saved: dict[str, Any], edited: dict[str, Any], target: str, answer: bool | None
) -> None:
    assert scope(saved, edited).includes(target) is answer


def test_the_views_of_the_site_are_found_by_route() -> None:
    views = views_by_route()
    assert views["metrics"] == View("metrics", "resty_django.metrics.views.view")
    assert views["admin/resty_limits/limitpolicy/add/"].name == "admin:resty_limits_limitpolicy_add"
