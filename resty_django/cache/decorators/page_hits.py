"""Hits of pages in L1 without computing their keys, which would triple the time of a hit.

The signature of a request contains everything that the key of its page depends on, in a form that is cheap to obtain.
The keys of recent signatures are kept. A signature contains the marks of the path and of the view (`view_keys`), so a
deleted mark makes it useless. It contains the language and the time zone also without USE_I18N and USE_TZ, because
reading these settings takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import get_language

from resty_django.conf import on_change

from ..mlcache.cache import MLCache
from ..storage.lru import LRU
from .cacheability import Rules
from .pages import L1Page
from .view_keys import name_of, query_of, url_key, view_key

MAX_SIGNATURES: Final = 1000
"""Number of signatures that are kept for a view; also the number of hosts."""

Signature = tuple[Hashable, ...]


class PageHits:
    """The pages of one view in L1."""

    def __init__(self, view: Callable[..., object], rules: Rules) -> None:
        self._view = view
        self._rules = rules
        self._keys = LRU(MAX_SIGNATURES)
        self._needs_key = rules.user or rules.key is not None

    def find(self, request: HttpRequest, cache: MLCache) -> HttpResponse | None:
        """Return the response for a hit; None if the page, a mark or the key is not in memory."""
        if self._needs_key:
            return None
        in_l1 = cache.in_l1
        marks = in_l1(url_key(request.path)), in_l1(view_key(name_of(request, self._view)))
        if None in marks:
            return None
        signature: Signature = (marks, *self.signature(request))
        for lookups in (3, 4):  # the marks, the page, and the names of headers that the page varies on
            key = self._keys.get(signature)
            page = None if key is None else in_l1(key)
            if isinstance(page, L1Page):
                cache.count_l1(lookups)
                return page.response(request, self._rules)
            if not isinstance(page, dict):
                return None
            signature = _with_headers(signature, request, page["vary"])
        return None

    def signature(self, request: HttpRequest) -> Signature:
        """Return the request's signature without the marks; an empty one if it is not needed."""
        if self._needs_key:
            return ()
        rules, scheme = self._rules, request.scheme
        signature: Signature = (
            scheme,
            _host_of(request, scheme),
            request.path,
            request.encoding,
            # `request.GET` is expensive, unless it was used before; then it may have been replaced.
            query_of(request, rules.query) if "GET" in request.__dict__ else request.META.get("QUERY_STRING"),
            get_language() if rules.language else None,
            get_current_timezone_name() if rules.language else None,
        )
        return _with_headers(signature, request, rules.headers) if rules.headers else signature

    def remember(self, signature: Signature, request: HttpRequest, names: Collection[str], key: str) -> None:
        """Keep the key of a page. `names`: the headers that the page varies on.

        `signature`: with the marks, of the request before the view, which may change the request or the language.
        """
        if not self._needs_key:
            self._keys.set(_with_headers(signature, request, names) if names else signature, key)


def _with_headers(signature: Signature, request: HttpRequest, names: Collection[str]) -> Signature:
    """Return the signature with the values of headers, without parsing the other headers of the request."""
    variables = [name.upper().replace("-", "_") for name in sorted(map(str.lower, names))]
    unprefixed = {"CONTENT_LENGTH", "CONTENT_TYPE"}
    return (signature, *(request.META.get(name if name in unprefixed else f"HTTP_{name}") for name in variables))


_hosts = LRU(MAX_SIGNATURES)


def _host_of(request: HttpRequest, scheme: str | None) -> str:
    """Return `request.get_host()`, which validates the host, from memory, which saves a sixth of a hit.

    Raise `DisallowedHost`.
    """
    if type(request).get_host is not HttpRequest.get_host:
        return request.get_host()
    get = request.META.get
    forwarded = get("HTTP_X_FORWARDED_HOST"), get("HTTP_X_FORWARDED_PORT")
    source = scheme, get("HTTP_HOST"), forwarded, get("SERVER_NAME"), get("SERVER_PORT")
    host: str | None = _hosts.get(source)
    if host is None:
        host = request.get_host()
        _hosts.set(source, host)
    return host


on_change(_hosts.flush_all, "ALLOWED_HOSTS", "DEBUG", "USE_X_FORWARDED_HOST", "USE_X_FORWARDED_PORT")
