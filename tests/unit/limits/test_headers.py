"""The header fields of responses, read back with a parser of structured fields."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest
from django.http import HttpResponse
from django.http.response import ResponseHeaders
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.callers.request_settings import DRAFT, LEGACY
from resty_django.limits.decision import Decision
from resty_django.limits.limiters.concurrency import Concurrency
from resty_django.limits.limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from resty_django.limits.requests.headers import (
    MAX_FIELD_INTEGER,
    AdvertisedLimit,
    add_headers,
    policy_parameters,
    quoted,
    shown_name,
)
from resty_django.limits.requests.response import retry_after

ITEM = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"((?:;[a-z]+=(?:\d+|"[a-z-]+"))*)(?:, |$)')


def fields(text: str) -> list[tuple[str, dict[str, str]]]:
    """The items of a list of RFC 9651: strings with parameters."""
    items, at = [], 0
    while at < len(text):
        item = ITEM.match(text, at)
        assert item is not None, text[at:]
        items.append((re.sub(r"\\(.)", r"\1", item[1]), dict(pair.split("=") for pair in item[2].split(";")[1:])))
        at = item.end()
    return items


@pytest.mark.parametrize(
    ("limiter", "expected"),
    [
        (LeakyBucket(200, 100), ";q=101;w=1"),
        (LeakyBucket(0.5, 2), ";q=3;w=6"),
        (LeakyBucket(10), ";q=1;w=1"),
        (FixedWindow(5000, 3600), ";q=5000;w=3600"),
        (FixedWindow(5, 0.5), ";q=5;w=1"),
        (SlidingWindow(100, 60), ";q=100;w=60"),
        (TokenBucket.from_interval(100, 50), ";q=50;w=5"),
        (TokenBucket.from_interval(1000, 10, 2), ";q=10;w=5"),
        (Concurrency(100, 20), ';q=120;qu="concurrent-requests"'),
    ],
)
def test_a_policy_reports_quota_and_window(limiter: Any, expected: str) -> None:
    assert policy_parameters(limiter) == expected


@given(st.text())
def test_a_name_is_a_string_of_structured_fields(name: str) -> None:
    ((read, _),) = fields(quoted(name))
    assert read == shown_name(name)
    assert unquote(read, errors="surrogatepass") == name


def test_names_stay_different_and_readable() -> None:
    assert shown_name('search "x" \\ 1') == 'search "x" \\ 1'
    assert quoted('search "x" \\ 1') == '"search \\"x\\" \\\\ 1"'
    assert (shown_name("größe"), shown_name("grüße")) == ("gr%C3%B6%C3%9Fe", "gr%C3%BC%C3%9Fe")
    assert shown_name("50%") == "50%25"
    assert shown_name("a\r\nSet-Cookie: x") == "a%0D%0ASet-Cookie: x"


@pytest.fixture
def headers() -> ResponseHeaders:
    return HttpResponse().headers


def test_one_limit(headers: ResponseHeaders) -> None:
    add_headers(headers, AdvertisedLimit("req-ip", LeakyBucket(200, 100)), Decision(True, 0, 1.0, 101, 99, 0.005))
    sent = {name: headers[name] for name in headers if name != "Content-Type"}
    assert sent == {
        "RateLimit": '"req-ip";r=99;t=1',
        "RateLimit-Policy": '"req-ip";q=101;w=1',
        "X-RateLimit-Limit": "101",
        "X-RateLimit-Remaining": "99",
        "X-RateLimit-Reset": "1",
    }


def test_a_refusal_reports_when_the_next_request_would_pass(headers: ResponseHeaders) -> None:
    add_headers(
        headers,
        AdvertisedLimit("count", FixedWindow(10, 60)),
        Decision(False, limit=10, reset_after=60, retry_after=12.3),
    )
    assert headers["RateLimit"] == '"count";r=0;t=13'
    assert headers["X-RateLimit-Remaining"] == "0"
    assert headers["X-RateLimit-Reset"] == "13"


def test_all_limits_are_reported_and_the_tightest_separately(headers: ResponseHeaders) -> None:
    loose, tight, same = (
        AdvertisedLimit(name, FixedWindow(limit, 60)) for name, limit in (("a", 100), ("b", 5), ("c", 7))
    )
    add_headers(headers, loose, Decision(True, 0, 90, 100, 90, 30))
    add_headers(headers, tight, Decision(True, 0, 3, 5, 3, 10))
    add_headers(headers, same, Decision(True, 0, 3, 7, 3, 20))
    assert fields(headers["RateLimit"]) == [
        ("c", {"r": "3", "t": "20"}),
        ("b", {"r": "3", "t": "10"}),
        ("a", {"r": "90", "t": "30"}),
    ]
    assert [name for name, _ in fields(headers["RateLimit-Policy"])] == ["c", "b", "a"]
    assert headers["X-RateLimit-Limit"] == "7"
    assert headers["X-RateLimit-Remaining"] == "3"
    assert headers["X-RateLimit-Reset"] == "20"


@pytest.mark.parametrize(
    ("selected", "sent"),
    [
        (
            DRAFT | LEGACY,
            ["RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"],
        ),
        (DRAFT, ["RateLimit", "RateLimit-Policy"]),
        (LEGACY, ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]),
        (0, []),
    ],
)
def test_the_selected_fields_report_several_limits(headers: ResponseHeaders, selected: int, sent: list[str]) -> None:
    for name, left in (("loose", 90), ("tight", 3), ("middle", 40)):
        advertised = AdvertisedLimit(name, FixedWindow(100, 60))
        add_headers(headers, advertised, Decision(True, 0, left, 100, left, 30), selected)
    assert sorted(name for name in headers if name != "Content-Type") == sent
    if "RateLimit" in sent:
        assert [name for name, _ in fields(headers["RateLimit"])] == ["middle", "tight", "loose"]
        assert len(fields(headers["RateLimit-Policy"])) == 3
    if "X-RateLimit-Limit" in sent:
        assert headers["X-RateLimit-Remaining"] == "3"


def test_numbers_stay_within_the_integers_of_structured_fields(headers: ResponseHeaders) -> None:
    add_headers(headers, AdvertisedLimit("x", FixedWindow(10**15, 60)), Decision(True, 0, 1, 10**15, 10**15, 60))
    assert fields(headers["RateLimit"]) == [("x", {"r": str(MAX_FIELD_INTEGER), "t": "60"})]
    assert fields(headers["RateLimit-Policy"]) == [("x", {"q": str(MAX_FIELD_INTEGER), "w": "60"})]


def test_header_fields_of_the_site_may_contain_text(headers: ResponseHeaders) -> None:
    headers["RateLimit"], headers["RateLimit-Policy"] = '"theirs";r=1', '"theirs";q=1'
    headers["X-RateLimit-Remaining"] = "many"
    add_headers(headers, AdvertisedLimit("ours", FixedWindow(5, 60)), Decision(True, 0, 3, 5, 3, 10))
    assert headers["RateLimit"] == '"ours";r=3;t=10, "theirs";r=1'
    assert headers["X-RateLimit-Remaining"] == "3"


def test_the_policy_follows_the_numbers_of_the_limiter() -> None:
    limiter = LeakyBucket(10, 4)
    advertised = AdvertisedLimit("x", limiter)
    response = HttpResponse()
    add_headers(response.headers, advertised, Decision(True, limit=5))
    assert response.headers["RateLimit-Policy"] == '"x";q=5;w=1'
    limiter.set_rate(1)
    response = HttpResponse()
    add_headers(response.headers, advertised, Decision(True, limit=5))
    assert response.headers["RateLimit-Policy"] == '"x";q=5;w=5'


def test_the_fields_are_read_like_any_header_of_a_response() -> None:
    response = HttpResponse()
    add_headers(response.headers, AdvertisedLimit("x", FixedWindow(5, 60)), Decision(True, 0, 3, 5, 3, 10))
    assert response["ratelimit"] == response["RateLimit"] == '"x";r=3;t=10'
    assert "X-RATELIMIT-LIMIT" in response
    assert b"X-RateLimit-Remaining: 3\r\n" in response.serialize_headers() + b"\r\n"
    del response["X-RateLimit-Limit"]
    assert "X-RateLimit-Limit" not in response.headers


@pytest.mark.parametrize(("seconds", "header"), [(0, 1), (0.001, 1), (1, 1), (1.001, 2), (59.2, 60)])
def test_retry_after_is_whole_seconds_and_at_least_one(seconds: float, header: int) -> None:
    assert retry_after(Decision(False, retry_after=seconds)) == header
