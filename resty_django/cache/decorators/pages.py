"""Cached pages: conversion from and to responses.

Nothing is pickled: a page consists of a status, headers, a body and two numbers. Cookies are never stored.
"""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from http.cookies import SimpleCookie
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import ResponseHeaders
from django.utils.cache import get_conditional_response, get_max_age, patch_cache_control, patch_vary_headers
from django.utils.http import http_date, parse_http_date_safe, quote_etag

from .cacheability import Rules, directives


class StoredPage(NamedTuple):
    """A page in L2. `created`: seconds since 1970."""

    status: int
    reason: str
    headers: list[list[str]]
    body: bytes
    created: float


def stored_page(response: HttpResponse, ttl: float, rules: Rules) -> StoredPage:
    """Return the page with headers for other caches, which are also added to the response.

    `ttl`: the page's time to live in seconds; 0: forever.
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
        patch_cache_control(response, max_age=int(ttl) if rules.max_age is None else int(rules.max_age))
    headers = [[name, value] for name, value in response.items()]
    return StoredPage(response.status_code, response.reason_phrase, headers, response.content, time.time())


class L1Page:
    """A page in L1, with a response that is copied for each request."""

    __slots__ = ("_created", "_expires", "_has_age", "_template")

    def __init__(self, page: StoredPage) -> None:
        response = HttpResponse(page.body, status=page.status, reason=page.reason, headers=dict(page.headers))
        self._template = response
        self._created = page.created
        self._has_age = "Age" in response
        self._expires = None if "Expires" in response else get_max_age(response)
        """Seconds until browsers must revalidate the page, if the header is to be added."""

    def response(self, request: HttpRequest, rules: Rules) -> HttpResponse:
        """Return the response to a request, which may be conditional."""
        response = self._copy()
        fields = response.headers._store  # see `add_status`
        now, age = time.time(), 0
        if rules.max_age is None:
            age = max(0, int(now - self._created))
            fields["age"] = "Age", str(age)
        elif self._has_age:
            return finished(request, response)
        conditions = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_UNMODIFIED_SINCE")
        if any(map(request.META.__contains__, conditions)):
            return finished(request, response)
        if self._expires is not None:
            fields["expires"] = "Expires", _http_date(int(now + self._expires - age))
        return response

    def _copy(self) -> HttpResponse:
        """Return a copy of the response that shares nothing that can be changed.

        It is not constructed from its parts, which saves a quarter of a hit.
        """
        template = self._template
        response = HttpResponse.__new__(HttpResponse)
        headers = ResponseHeaders.__new__(ResponseHeaders)
        headers._store = template.headers._store.copy()
        response.__dict__ = {
            **template.__dict__,
            "headers": headers,
            "cookies": SimpleCookie(),
            "_resource_closers": [],
            "_container": [*template.__dict__["_container"]],
        }
        return response


def l1_value(value: object) -> object:
    """Return a value of a page's key as L1 stores it."""
    return L1Page(StoredPage(*value)) if isinstance(value, list | StoredPage) else value


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
    """Return the date from memory, which saves a seventh of a hit."""
    return http_date(seconds)
