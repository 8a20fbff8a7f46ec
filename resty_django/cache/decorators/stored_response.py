"""Cached pages: conversion from and to responses.

Nothing is pickled: a page consists of a status, headers, a body and two numbers. Cookies are never stored.
"""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from http.cookies import SimpleCookie
from typing import Any, Final, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import ResponseHeaders
from django.utils.cache import get_conditional_response, get_max_age, patch_cache_control, patch_vary_headers
from django.utils.http import http_date, parse_http_date_safe, quote_etag

from .cacheability import Rules, directives

CONDITIONS: Final = frozenset(
    {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_UNMODIFIED_SINCE"}
)
"""Headers of conditional requests."""


class Page(NamedTuple):
    """A cached page. `created`: seconds since 1970."""

    status: int
    reason: str
    headers: list[list[str]]
    body: bytes
    created: float


def page_of(response: HttpResponse, life: float, rules: Rules) -> Page:
    """Return the page with headers for other caches, which are also added to the response.

    `life`: time to live of the page in seconds; 0: forever.
    """
    if "ETag" not in response:
        response["ETag"] = quote_etag(hashlib.blake2b(response.content, digest_size=16).hexdigest())
    vary = [*rules.headers]
    if rules.user:
        vary.append("Cookie")
        patch_cache_control(response, private=True)
    if vary:
        patch_vary_headers(response, vary)
    if {"max-age", "no-cache", "no-store"}.isdisjoint(directives(response)):
        patch_cache_control(response, max_age=int(life) if rules.max_age is None else int(rules.max_age))
    headers = [[name, value] for name, value in response.items()]
    return Page(response.status_code, response.reason_phrase, headers, response.content, time.time())


class StoredPage:
    """A cached page in L1, with a response that is copied for each request."""

    __slots__ = ("_created", "_expires", "_has_age", "_template")

    def __init__(self, page: Page) -> None:
        response = HttpResponse(page.body, status=page.status, reason=page.reason, headers=dict(page.headers))
        self._template = response
        self._created = page.created
        self._has_age = "Age" in response
        self._expires = None if "Expires" in response else get_max_age(response)
        """Seconds until browsers must revalidate the page, if the header is to be added."""

    def response(self, request: HttpRequest, rules: Rules) -> HttpResponse:
        """Return the response to a request, which may be conditional."""
        response = self._copy()
        headers: dict[str, tuple[str, str]] = response.headers._store
        now, age = time.time(), 0
        if rules.max_age is None:
            age = max(0, int(now - self._created))
            headers["age"] = "Age", str(age)
        elif self._has_age:
            return finished(request, response)
        if any(map(request.META.__contains__, CONDITIONS)):
            return finished(request, response)
        if self._expires is not None:
            headers["expires"] = "Expires", _http_date(int(now + self._expires - age))
        return response

    def _copy(self) -> HttpResponse:
        """Return a copy of the response that shares nothing that can be changed."""
        template = self._template
        response = HttpResponse.__new__(HttpResponse)
        response.__dict__.update(template.__dict__)
        headers = ResponseHeaders.__new__(ResponseHeaders)
        headers._store = template.headers._store.copy()
        response.headers = headers
        response.cookies = SimpleCookie()
        response._resource_closers = []  # type: ignore[attr-defined]
        response._container = list(template._container)  # type: ignore[attr-defined]
        return response


def for_l1(value: Any) -> Any:
    """Return a value of a page's key as L1 stores it."""
    return StoredPage(Page(*value)) if isinstance(value, list | Page) else value


def finished(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return the response with `Expires`, or a 304 or 412 for a conditional request."""
    seconds, age = get_max_age(response), response.get("Age")
    if seconds is not None and "Expires" not in response:
        response["Expires"] = http_date(time.time() + seconds - int(age or 0))
    modified = parse_http_date_safe(response["Last-Modified"]) if "Last-Modified" in response else None
    answer = get_conditional_response(request, response.get("ETag"), modified, response) or response
    if age is not None:
        answer["Age"] = age
    return answer


@lru_cache(maxsize=256)
def _http_date(seconds: int) -> str:
    return http_date(seconds)
