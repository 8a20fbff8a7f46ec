"""Cached pages: conversion from and to responses.

Nothing is pickled: a page consists of a status, headers, a body and two numbers. Cookies are never stored.
"""

from __future__ import annotations

import hashlib
import time
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, get_max_age, patch_cache_control, patch_vary_headers
from django.utils.http import http_date, parse_http_date_safe, quote_etag

from .cacheability import Rules, directives


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


def response_of(page: Page, rules: Rules) -> HttpResponse:
    response = HttpResponse(page.body, status=page.status, reason=page.reason, headers=dict(page.headers))
    if rules.max_age is None:
        response["Age"] = str(max(0, int(time.time() - page.created)))
    return response


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
