"""Hits of pages in L1, without computing keys and without constructing responses from their parts.

A signature contains everything that the key of a page depends on, in a form that is cheap to obtain. The keys of recent
signatures are kept. A signature contains the marks of the path and of the view (`view_keys`), so a deleted mark makes
it useless. It contains the language and the time zone also without USE_I18N and USE_TZ, because reading these settings
takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import get_language

from resty_django.conf import on_change

from ..mlcache.cache import MLCache
from ..storage.lru import LRU
from .cacheability import Rules
from .stored_response import StoredPage
from .view_keys import name_of, query_of, url_key, view_key

SIZE: Final = 1000
"""Number of signatures that are kept for a view, and number of hosts."""
UNPREFIXED: Final = frozenset({"CONTENT_LENGTH", "CONTENT_TYPE"})

Signature = tuple[Hashable, ...]
Keep = Callable[[tuple[str, str], Collection[str], str], None]


class PageHits:
    """The pages of one view in L1."""

    def __init__(self, view: Callable[..., Any], rules: Rules) -> None:
        self._view = view
        self._rules = rules
        self._keys = LRU(SIZE)
        self._is_simple = not rules.user and rules.key is None

    def find(self, request: HttpRequest, cache: MLCache) -> HttpResponse | None:
        """Return the response for a hit; None if the page, a mark or the key is not in memory."""
        if not self._is_simple:
            return None
        in_l1 = cache.in_l1
        marks = in_l1(url_key(request.path)), in_l1(view_key(name_of(request, self._view)))
        if None in marks:
            return None
        signature: Signature = (marks, *self._parts(request))
        for lookups in (3, 4):
            key = self._keys.get(signature)
            page = None if key is None else in_l1(key)
            if type(page) is StoredPage:
                cache.count_l1(lookups)
                return page.response(request, self._rules)
            if type(page) is not dict:
                return None
            signature = _with_headers(signature, request, page["vary"])
        return None

    def keeper(self, request: HttpRequest) -> Keep:
        """Return a function that keeps the key of a page. It takes the marks, the names of the headers that the page
        varies on, and the key.

        Call it before the view, which may change the request or the language.
        """
        parts = self._parts(request) if self._is_simple else None

        def keep(marks: tuple[str, str], names: Collection[str], key: str) -> None:
            if parts is not None:
                signature: Signature = (marks, *parts)
                self._keys.set(_with_headers(signature, request, names) if names else signature, key)

        return keep

    def _parts(self, request: HttpRequest) -> Signature:
        """Return the signature without the marks."""
        rules, scheme = self._rules, request.scheme
        parts: Signature = (
            scheme,
            _host_of(request, scheme),
            request.path,
            request.encoding,
            # `request.GET` is expensive, unless it was used before; then it may have been replaced.
            query_of(request, rules.query) if "GET" in request.__dict__ else request.META.get("QUERY_STRING"),
            get_language() if rules.language else None,
            get_current_timezone_name() if rules.language else None,
        )
        return _with_headers(parts, request, rules.headers) if rules.headers else parts


def _with_headers(signature: Signature, request: HttpRequest, names: Collection[str]) -> Signature:
    """Return the signature with the values of headers, without parsing the other headers of the request."""
    meta = request.META
    variables = (name.upper().replace("-", "_") for name in sorted(map(str.lower, names)))
    return (signature, *(meta.get(name if name in UNPREFIXED else f"HTTP_{name}") for name in variables))


_hosts: Final = LRU(SIZE)


def _host_of(request: HttpRequest, scheme: str | None) -> str:
    """Return `request.get_host()`, which validates the host, from memory. Raise `DisallowedHost`."""
    if type(request).get_host is not HttpRequest.get_host:
        return request.get_host()
    get = request.META.get
    source = (
        get("HTTP_HOST"),
        get("HTTP_X_FORWARDED_HOST"),
        get("HTTP_X_FORWARDED_PORT"),
        get("SERVER_NAME"),
        get("SERVER_PORT"),
        scheme,
    )
    host: str | None = _hosts.get(source)
    if host is None:
        host = request.get_host()
        _hosts.set(source, host)
    return host


on_change(_hosts.flush_all, "ALLOWED_HOSTS", "DEBUG", "USE_X_FORWARDED_HOST", "USE_X_FORWARDED_PORT")
