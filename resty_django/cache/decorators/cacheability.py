"""Cacheability and lifetime of responses, according to HTTP's rules for shared caches and Django's rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.http import parse_http_date_safe

from resty_django.callables import plain_function
from resty_django.text.durations import is_number

from ..errors import BadOption

DEFAULT_STATUSES: Final = (200, 301, 308)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The arguments of `cache_view`, with times in seconds. `options`: fields of `CacheOptions`. Raise `BadOption`."""

    ttl: float
    user: bool = False
    headers: tuple[str, ...] = ()
    language: bool = True
    query: tuple[str, ...] | None = None
    key: Callable[[HttpRequest], object] | None = None
    max_age: int | None = None
    statuses: tuple[int, ...] = DEFAULT_STATUSES
    allow: Collection[str] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain_function(self.key, "key of cache_view")
        plain_function(self.options.get("tags"), "tags of cache_view")
        if "l1_serializer" in self.options:
            raise BadOption("l1_serializer is not an option of cache_view: pages are stored unchanged. Remove it.")
        if "error_ttl" in self.options:
            raise BadOption("error_ttl is not an option of cache_view: each request gets its own error. Remove it.")
        for name in ("headers", "query"):
            names = getattr(self, name)
            if names is not None and not (isinstance(names, tuple | list) and all(isinstance(x, str) for x in names)):
                raise BadOption(f"{name} must be a tuple of names, not {names!r}.")
        exceptions = ("authorization", "cookies", "no-store", "private", "session")
        if isinstance(self.allow, str) or not set(self.allow) <= set(exceptions):
            raise BadOption(f"allow must be a set of some of {', '.join(exceptions)}, not {self.allow!r}.")
        if self.max_age is not None and not (is_number(self.max_age) and self.max_age >= 0):
            raise BadOption(f"max_age must be None or a number of seconds of at least 0, not {self.max_age!r}.")

    def bypasses(self, request: HttpRequest) -> bool:
        """Return whether this request bypasses the cache."""
        return request.method not in ("GET", "HEAD") or (
            "HTTP_AUTHORIZATION" in request.META and "authorization" not in self.allow
        )


def directives(response: HttpResponseBase) -> dict[str, str]:
    """Return the directives of `Cache-Control`, with their values, in lower case."""
    values = {}
    for directive in response.get("Cache-Control", "").lower().split(","):
        name, _, value = directive.partition("=")
        values[name.strip()] = value.strip().strip('"')
    return values


def lifetime(response: HttpResponseBase, rules: Rules) -> float:
    """Return the seconds for which the response may be cached (0: forever, negative: not at all): the time in the
    rules, or a shorter time in the response."""
    cache_control = directives(response)
    for name in ("s-maxage", "max-age"):
        if name in cache_control and "no-store" not in rules.allow:
            seconds = float(cache_control[name]) if cache_control[name].isdecimal() else 0.0
            break
    else:
        if "Expires" not in response or "max-age" in cache_control:
            return rules.ttl
        seconds = (parse_http_date_safe(response["Expires"]) or 0) - time.time()
    if seconds <= 0:
        return -1
    return min(rules.ttl, seconds) if rules.ttl else seconds


def refusal(request: HttpRequest, response: HttpResponseBase, rules: Rules, session_used: bool) -> str | None:
    """Return why the response must not be cached; None if it may be."""
    return next(_reasons(request, response, rules, session_used), None)


def _reasons(request: HttpRequest, response: HttpResponseBase, rules: Rules, session_used: bool) -> Iterator[str]:
    cache_control, allow = directives(response), rules.allow
    if not isinstance(response, HttpResponse) or response.streaming:
        yield "it is a stream"
    if response.status_code not in rules.statuses:
        yield f"its status is {response.status_code}"
    if response.cookies and "cookies" not in allow:
        yield "it sets cookies"
    if request.META.get("CSRF_COOKIE_NEEDS_UPDATE"):
        yield "it has a CSRF token"
    if getattr(request, "_csp_nonce", None):
        yield "it has a content security policy nonce"
    if _has_messages(request):
        yield "it shows messages for one visitor"
    if session_used and "session" not in allow:
        yield "the session was used"
    if "private" in cache_control and "private" not in allow:
        yield "it is private"
    if ("no-store" in cache_control or "no-cache" in cache_control) and "no-store" not in allow:
        yield "it says no-store or no-cache"
    if "*" in response.get("Vary", ""):
        yield "it varies on everything"
    if lifetime(response, rules) < 0:
        yield "it expires immediately"


def _has_messages(request: HttpRequest) -> bool:
    messages = getattr(request, "_messages", None)
    return messages is not None and getattr(messages, "used", False) and len(messages) > 0
