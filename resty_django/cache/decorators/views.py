"""`@cache_view`: caches the pages of a view.

A GET or HEAD request is answered from the first of these that has its page:

1. the memory of the process, without computing the key of the page (`page_hits`);
2. the cache, under the key of the page (`view_keys`);
3. the view, which runs once for all concurrent requests for the page. `cacheability` decides whether and for how long
   the page is stored, and `pages` converts it.

Three kinds of values are stored under the key of a page: the page; a dict with the names of the headers that the page
varies on, which are known after the view has run: then the page is stored under another key, with the values of these
headers; and `UNCACHEABLE_PAGE`, so that no request waits for the page. `cache_status` adds a response header.

A function that may wait is a generator of steps (`resty_django.sansio`), for sync and async views alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from resty_django.lock import LockTimeout
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import SharedDictError
from resty_django.text import logger
from resty_django.text.durations import Duration

from ..errors import BadOption, CacheError, CallbackFailed, LockFailed, SourceError
from ..mlcache.cache import MLCache
from ..mlcache.options import ViewOptions, checked
from ..mlcache.registry import mlcaches
from ..mlcache.results import L3, Fresh, Hit
from ..model_dependencies.dependency import Depends, tags_with_models
from ..tags.names import Tags
from .cache_status import CacheStatus, add_status
from .cacheability import DEFAULT_STATUSES, Rules, lifetime, refusal
from .page_hits import PageHits
from .pages import L1Page, finished, l1_value, stored_page
from .view_keys import PageKey, page_key

log = logger("resty_django.cache")

View = TypeVar("View", bound=Callable[..., Any])

UNCACHEABLE_PAGE: Final = "pass"
"""Stored in place of a page that must not be cached."""


def cache_view(
    ttl: Duration,
    cache: MLCache | str = "default",
    *,
    user: bool = False,
    headers: Sequence[str] = (),
    language: bool = True,
    query: Sequence[str] | None = None,
    key: Callable[[HttpRequest], object] | None = None,
    max_age: int | None = None,
    statuses: Sequence[int] = DEFAULT_STATUSES,
    allow: Collection[str] = (),
    depends_on: Depends = (),
    **options: Unpack[ViewOptions],
) -> Callable[[View], View]:
    """Cache the pages of a sync or async view for `ttl` seconds (0: forever), one per scheme, host and path.

        @cache_view(60, query=("page",), stale_while_revalidate=30)
        def products(request): ...

    Further variants: `user`: one page per user. `headers`: per value of these headers. `language`: per active language
    and time zone. `query`: per value of these parameters, in any order; None: all. `key`: per result of this function.

    `cache`: a cache without a serializer, or its name in the settings. `max_age`: seconds for which browsers may use
    the page without revalidation (None: as long as it is cached). `statuses`: cacheable status codes. `allow`:
    exceptions, a set of "authorization", "cookies", "no-store", "private", "session". `depends_on`: models, their
    labels, or results of `invalidate_on`; a committed change of their rows deletes the pages. `options`: fields of
    `CacheOptions`; a function passed as `tags` takes the arguments of the view.

    If the cache is unavailable, the view runs without it. Raise `BadOption`.
    """
    if callable(ttl):
        raise BadOption(
            f"@cache_view was given the view {getattr(ttl, '__name__', ttl)!s} in place of seconds. Write the "
            "seconds for which a page is kept in brackets: @cache_view(60)."
        )
    if isinstance(headers, str) or isinstance(query, str):
        raise BadOption("headers and query must be tuples of names, not a str.")
    call_options = checked({"ttl": ttl, **options})
    rules = Rules(
        ttl=call_options.pop("ttl"),
        user=user,
        headers=(*headers, "Authorization") if "authorization" in allow else tuple(headers),
        language=language,
        query=None if query is None else tuple(query),
        key=key,
        max_age=max_age,
        statuses=tuple(statuses),
        allow=allow,
        options=call_options,
    )

    def decorate(view: View) -> View:
        if isinstance(view, type):
            raise BadOption(
                f"@cache_view cannot decorate the class {view.__name__} itself. Write "
                '@method_decorator(cache_view(60), name="dispatch") above the class.'
            )
        tags = options.get("tags", ())
        if depends_on:
            tags = tags_with_models(tags, depends_on, view, cache, f"{view.__module__}.{view.__qualname__}")
        cached_view = CachedView(view, cache, rules, tags)
        wrapped: Callable[..., object]
        if cached_view.is_async:

            async def wrapped(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
                if cached_view.bypasses(request):
                    return cached_view.bypassed(request, await view(request, *args, **kwargs))
                response = cached_view.find_in_memory(request)
                return await arun(cached_view.respond(request, args, kwargs)) if response is None else response
        else:

            def wrapped(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
                if cached_view.bypasses(request):
                    return cached_view.bypassed(request, view(request, *args, **kwargs))
                response = cached_view.find_in_memory(request)
                return run(cached_view.respond(request, args, kwargs)) if response is None else response

        return cast("View", functools.wraps(view)(wrapped))

    return decorate


class CachedView:
    """A view with its cache. `tags`: of its pages, or a function of the view's arguments."""

    def __init__(self, view: Callable[..., Any], cache: MLCache | str, rules: Rules, tags: Tags) -> None:
        self.view = view
        self.rules = rules
        self.tags = tags
        self.hits = PageHits(view, rules)
        # `method_decorator` passes `dispatch` of a class, which is not a coroutine function.
        owner = getattr(getattr(view, "func", view), "__self__", None)
        self.is_async = iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))
        self._cache = cache

    @property
    def cache(self) -> MLCache:
        return mlcaches[self._cache] if isinstance(self._cache, str) else self._cache

    def bypasses(self, request: HttpRequest) -> bool:
        """Return whether the request bypasses the cache. Raise `BadOption` if the argument is not a request."""
        if not hasattr(request, "META"):
            raise BadOption(
                f"@cache_view on {getattr(self.view, '__qualname__', self.view)!s} was called with a "
                f"{type(request).__name__} in place of a request. Write @method_decorator(cache_view(60)) above a "
                "method."
            )
        return self.rules.bypasses(request)

    def bypassed(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response of a view to a request that bypasses the cache."""
        name = self._cache if isinstance(self._cache, str) else self._cache.name
        status = CacheStatus.BYPASS if request.method in ("GET", "HEAD") else CacheStatus.METHOD
        add_status(response, name, status, self.rules)
        return response

    def find_in_memory(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response from memory; None if memory lacks the page."""
        cache = self.cache
        response = self.hits.find(_django_request(request), cache)
        if response is not None:
            add_status(response, cache.name, CacheStatus.HIT, self.rules)
        return response

    def respond(
        self, request: HttpRequest, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Steps[HttpResponseBase]:
        """Return the response from the cache or from the view."""
        call = functools.partial(self.view, request, *args, **kwargs)
        tags = functools.partial(self.tags, request, *args, **kwargs) if callable(self.tags) else self.tags
        cached_request = CachedRequest(self, request, call, tags)
        response = yield from cached_request.respond()
        add_status(response, self.cache.name, cached_request.status, self.rules)
        return response


class CachedRequest:
    """A request for a page of a cached view.

    `request`: as the view receives it, perhaps of Django REST framework. `call`: the view with its arguments. `tags`:
    of the page, or a function without arguments.
    """

    def __init__(self, view: CachedView, request: HttpRequest, call: Callable[[], Any], tags: Tags) -> None:
        self.status = CacheStatus.MISS
        self._view = view
        self._cache = view.cache
        self._rules = view.rules
        self._request = _django_request(request)
        self._call = call
        # For a method of Django REST framework, `finalize_response` chooses the renderer and adds `Vary`. The framework
        # would call it after the method, too late for the cache.
        api_view = (getattr(request, "parser_context", None) or {}).get("view")
        self._finalize = functools.partial(api_view.finalize_response, request) if api_view is not None else None
        options = {"ttl": view.rules.ttl, "error_ttl": 0, "tags": tags, "l1_serializer": l1_value}
        self._options: dict[str, Any] = {**view.rules.options, **options}
        self._response: HttpResponseBase | None = None
        """The response of the view, if it has run for this request."""

    def respond(self) -> Steps[HttpResponseBase]:
        """Return the response and set `status`."""
        try:
            hit = yield from self._find_page()
        except CallbackFailed as failed:
            error = failed.error
        except SourceError as failed:
            if self._response is not None:
                self.status = CacheStatus.UNCACHEABLE
                return self._response
            error = failed.__cause__ if isinstance(failed.__cause__, Exception) else failed
        except (LockFailed, LockTimeout, SharedDictError) as failed:
            log.warning("%s is rendered without the cache: %s", self._request.path, failed)
            self.status = CacheStatus.UNAVAILABLE
            return (yield from self._run_view())
        else:
            return (yield from self._from_hit(hit))
        raise error  # without the errors of the cache in its context

    def _from_hit(self, hit: Hit) -> Steps[HttpResponseBase]:
        response = self._response
        if hit.level is L3 and response is not None:  # the view has run for this request
            if hit.value == UNCACHEABLE_PAGE or not isinstance(response, HttpResponse):
                self.status = CacheStatus.UNCACHEABLE
                return response
            self.status = CacheStatus.STORED
            return finished(self._request, response)
        if isinstance(hit.value, L1Page):
            self.status = CacheStatus.HIT if response is None else CacheStatus.STALE
            return hit.value.response(self._request, self._rules)
        self.status = CacheStatus.PASSED if hit.value == UNCACHEABLE_PAGE else CacheStatus.MISS
        return (yield from self._run_view())

    def _find_page(self) -> Steps[Hit]:
        """Return the page, or the value stored in its place, from the cache or the view."""
        signature = self._view.hits.signature(self._request)
        key = yield from page_key(self._request, self._view.view, self._cache, self._rules)
        names: list[str] = []
        """The headers that the page varies on, as far as known."""
        while True:
            callback = None if self._request.method == "HEAD" else self._callback(key, names)
            text = key.of(names)
            hit: Hit = yield self._lookup_step(text, callback)
            self._view.hits.remember((key.marks, *signature), self._request, names, text)
            if not isinstance(hit.value, dict) or (hit.level is L3 and self._response is not None):
                return hit
            names = hit.value["vary"]

    def _lookup_step(self, key: str, callback: Callable[[], object] | None) -> Step:
        lookup, alookup = self._cache.lookup, self._cache.alookup
        options = self._options
        return Step(functools.partial(lookup, **options), functools.partial(alookup, **options), (key, callback))

    def _callback(self, key: PageKey, names: list[str]) -> Callable[[], object]:
        if not self._view.is_async:
            return lambda: run(self._render(key, names))

        async def render() -> Fresh:
            return await arun(self._render(key, names))

        return render

    def _render(self, key: PageKey, names: list[str]) -> Steps[Fresh]:
        """Return the page rendered by the view, or the value to be stored in its place. `names`: as in `_find_page`."""
        request, rules = self._request, self._rules
        with _watched_session(request, rules.user) as session, _unconditional(request):
            response = yield from self._run_view()
        self._response = response
        if response.status_code >= 500 and response.status_code not in rules.statuses:
            # Serves a stale page if there is one; else this response is returned, and the next request tries again.
            raise SourceError(f"the view answered with status {response.status_code}")
        reason = refusal(request, response, rules, session.used)
        if reason is not None or not isinstance(response, HttpResponse):
            log.debug("%s is not cached: %s", request.path, reason)
            return Fresh(UNCACHEABLE_PAGE, 10)  # seconds until caching is tried again
        new_names = _varies_on(response, rules) - set(names)
        ttl = lifetime(response, rules)
        fresh = Fresh(stored_page(response, ttl, rules), ttl if ttl != rules.ttl else None)
        if not new_names:
            return fresh
        all_names = sorted(new_names | set(names))
        try:
            yield self._lookup_step(key.of(all_names), lambda: fresh)
        except (CacheError, LockTimeout, SharedDictError) as error:
            log.warning("%s could not be cached: %s", request.path, error)
        return Fresh({"vary": all_names}, fresh.ttl)

    def _run_view(self) -> Steps[HttpResponseBase]:
        """Return the response of the view, rendered if it is a `TemplateResponse`."""
        response: HttpResponseBase = yield Step(self._call, self._call)
        if self._finalize is not None:
            response = self._finalize(response)
        render = getattr(response, "render", None)
        if callable(render) and not getattr(response, "is_rendered", True):
            response = yield Step(render, sync_to_async(render))
        return response


def _django_request(request: HttpRequest) -> HttpRequest:
    """Return the request of Django that a request of Django REST framework wraps; other requests unchanged."""
    wrapped: HttpRequest = request if isinstance(request, HttpRequest) else getattr(request, "_request", request)
    return wrapped


def _varies_on(response: HttpResponseBase, rules: Rules) -> set[str]:
    """Return the headers in `Vary` that no rule covers."""
    covered = {name.lower() for name in rules.headers}
    if rules.user:
        covered.add("cookie")
    if rules.language:
        covered.add("accept-language")
    return {name.strip().lower() for name in response.get("Vary", "").split(",")} - covered - {""}


@contextmanager
def _unconditional(request: HttpRequest) -> Iterator[None]:
    """Hide the headers that would make the view return a partial or empty response: the complete page is needed."""
    conditions = ("MATCH", "NONE_MATCH", "MODIFIED_SINCE", "UNMODIFIED_SINCE", "RANGE")
    names = [f"HTTP_IF_{condition}" for condition in conditions] + ["HTTP_RANGE"]
    removed = {name: request.META.pop(name) for name in names if name in request.META}
    request.__dict__.pop("headers", None)
    try:
        yield
    finally:
        request.META.update(removed)
        request.__dict__.pop("headers", None)


@dataclass(slots=True)
class SessionUse:
    """Whether a view has used the session."""

    used: bool = False


@contextmanager
def _watched_session(request: HttpRequest, by_user: bool) -> Iterator[SessionUse]:
    """Find out whether the block uses the session. For pages per user, the lookup of the user happens before and does
    not count.
    """
    session: Any = getattr(request, "session", None)
    use = SessionUse()
    before = bool(getattr(session, "accessed", False))
    if by_user and before:
        session.accessed = False
    try:
        yield use
    finally:
        if getattr(session, "accessed", False):
            use.used = True
        elif by_user and before:
            session.accessed = True
