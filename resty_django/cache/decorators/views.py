"""`@cache_view`: caches the pages of a view."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
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
from ..mlcache.options import ViewOptions
from ..mlcache.registry import mlcaches
from ..mlcache.results import L3, Fresh, Hit
from ..model_dependencies.dependency import Depends, tags_with_models
from ..tags.names import Tags
from .cache_status import BYPASS, FAILED, HIT, METHOD, MISS, PASSED, STORED, UNAVAILABLE, UNCACHEABLE, add_status
from .cacheability import STATUSES, Rules, lifetime, refusal
from .page_hits import Keep, PageHits
from .stored_response import StoredPage, finished, for_l1, page_of
from .view_keys import PageKey, page_key

log = logger("resty_django.cache")

View = TypeVar("View", bound=Callable[..., Any])

PASS: Final = "pass"  # noqa: S105
"""Stored in place of an uncacheable page, so that no request waits for it."""
PASS_TTL: Final = 10.0
"""Seconds until caching is tried again."""
CONDITIONS: Final = (
    "HTTP_IF_MATCH",
    "HTTP_IF_NONE_MATCH",
    "HTTP_IF_MODIFIED_SINCE",
    "HTTP_IF_UNMODIFIED_SINCE",
    "HTTP_IF_RANGE",
    "HTTP_RANGE",
)
"""Headers that are hidden from a view because the complete page is needed."""


def cache_view(
    ttl: Duration,
    cache: MLCache | str = "default",
    *,
    user: bool = False,
    headers: Sequence[str] = (),
    language: bool = True,
    query: Sequence[str] | None = None,
    key: Callable[[HttpRequest], Any] | None = None,
    max_age: int | None = None,
    statuses: Sequence[int] = STATUSES,
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
    `Options`; a function passed as `tags` takes the arguments of the view.

    If the cache is unavailable, the view runs without it. Raise `BadOption`.
    """
    if callable(ttl):
        raise BadOption(
            f"@cache_view was given the view {getattr(ttl, '__name__', ttl)!s} in place of seconds. Write the "
            "seconds for which a page is kept in brackets: @cache_view(60)."
        )
    if isinstance(headers, str) or isinstance(query, str):
        raise BadOption("headers and query must be tuples of names, not a str.")
    rules = Rules(
        ttl=cast("float", ttl),
        user=user,
        headers=(*headers, "Authorization") if "authorization" in allow else tuple(headers),
        language=language,
        query=None if query is None else tuple(query),
        key=key,
        max_age=max_age,
        statuses=tuple(statuses),
        allow=allow,
        options=options,
    )

    def steps(
        view: Callable[..., Any], tags: Tags, hits: PageHits, request: HttpRequest, args: Any, kwargs: Any
    ) -> Steps[HttpResponseBase]:
        if callable(tags):
            tags = functools.partial(tags, request, *args, **kwargs)
        call = functools.partial(view, request, *args, **kwargs)
        cached_request = CachedRequest(_http_request(request), call, view, tags, _finalizer(request))
        mlcache = mlcaches[cache] if isinstance(cache, str) else cache
        response = yield from cached_request.answer(mlcache, rules, hits)
        add_status(response, mlcache.name, cached_request.status, rules)
        return response

    def passed(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        name = cache if isinstance(cache, str) else cache.name
        add_status(response, name, BYPASS if request.method in ("GET", "HEAD") else METHOD, rules)
        return response

    def found(hits: PageHits, request: HttpRequest) -> HttpResponse | None:
        mlcache = mlcaches[cache] if isinstance(cache, str) else cache
        response = hits.find(_http_request(request), mlcache)
        if response is not None:
            add_status(response, mlcache.name, HIT, rules)
        return response

    def decorate(view: View) -> View:
        wrapped: Any
        if isinstance(view, type):
            raise BadOption(
                f"@cache_view cannot decorate the class {view.__name__} itself. Write "
                '@method_decorator(cache_view(60), name="dispatch") above the class.'
            )
        tags = options.get("tags", ())
        if depends_on:
            name = f"{view.__module__}.{view.__qualname__}"
            tags = tags_with_models(tags, depends_on, view, cache, name)
        hits = PageHits(view, rules)
        if _is_async(view):

            async def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                _check_request(request, view)
                if rules.passes(request):
                    return passed(request, await view(request, *args, **kwargs))
                response = found(hits, request)
                if response is not None:
                    return response
                return await arun(steps(view, tags, hits, request, args, kwargs))
        else:

            def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                _check_request(request, view)
                if rules.passes(request):
                    return passed(request, view(request, *args, **kwargs))
                response = found(hits, request)
                if response is not None:
                    return response
                return run(steps(view, tags, hits, request, args, kwargs))

        return functools.wraps(view)(wrapped)  # type: ignore[return-value]

    return decorate


def _check_request(request: object, view: Callable[..., Any]) -> None:
    """Raise `BadOption` where the first argument is a view object: the decorator is on a method of a class."""
    if not hasattr(request, "META"):
        raise BadOption(
            f"@cache_view on {getattr(view, '__qualname__', view)!s} was called with a {type(request).__name__} in "
            "place of a request. Write @method_decorator(cache_view(60)) above a method."
        )


def _http_request(request: Any) -> HttpRequest:
    """Return the request of Django that a request of Django REST framework wraps; other requests unchanged."""
    return request if isinstance(request, HttpRequest) else getattr(request, "_request", request)


def _finalizer(request: Any) -> Callable[[Any], Any]:
    """Return a function that prepares a response for rendering.

    For a method of Django REST framework, this chooses the renderer and adds `Vary`, which the framework would do after
    the method, too late for the cache.
    """
    api_view = (getattr(request, "parser_context", None) or {}).get("view")
    return (lambda response: response) if api_view is None else functools.partial(api_view.finalize_response, request)


class CachedRequest:
    """A request to a cached view. `call`: the view with its arguments. `tags`: of its page, or a function without
    arguments. `finalize`: prepares the response before it is rendered."""

    def __init__(
        self,
        request: HttpRequest,
        call: Callable[[], Any],
        view: Callable[..., Any],
        tags: Tags,
        finalize: Callable[[Any], Any],
    ) -> None:
        self.request = request
        self.tags = tags
        self.view = view
        self._call = call
        self._finalize = finalize
        self._response: HttpResponseBase | None = None
        self.status = MISS
        """The parameters of `Cache-Status`."""

    def answer(self, cache: MLCache, rules: Rules, hits: PageHits) -> Steps[HttpResponseBase]:
        """Return the response: from the cache, or from the view, which runs once for all requests for the same page."""
        try:
            keep = hits.keeper(self.request)
            key = yield from page_key(self.request, self.view, cache, rules)
            hit = yield from self._find(cache, rules, key, keep)
        except CallbackFailed as failed:
            error = failed.error
        except SourceError as failed:
            if self._response is not None:
                self.status = UNCACHEABLE
                return self._response
            error = failed.__cause__ if isinstance(failed.__cause__, Exception) else failed
        except (LockFailed, LockTimeout, SharedDictError) as failed:
            log.warning("%s is rendered without the cache: %s", self.request.path, failed)
            self.status = UNAVAILABLE
            return (yield from self._run())
        else:
            if hit.level is L3 and self._response is not None:
                if hit.value == PASS or not isinstance(self._response, HttpResponse):
                    self.status = UNCACHEABLE
                    return self._response
                self.status = STORED
                return finished(self.request, self._response)
            if isinstance(hit.value, StoredPage):
                self.status = HIT if self._response is None else FAILED
                return hit.value.response(self.request, rules)
            self.status = PASSED if hit.value == PASS else MISS
            return (yield from self._run())
        raise error

    def _find(self, cache: MLCache, rules: Rules, key: PageKey, keep: Keep) -> Steps[Hit]:
        """Return the page, or the value stored in its place. The headers that a page varies on are only known after
        rendering: then a dict with their names is stored in its place, and the page is stored under another key.
        """
        names: list[str] = []
        options = self._options(rules)
        while True:
            callback = () if self.request.method == "HEAD" else (self._callback(cache, rules, key, names),)
            name = key.of(names)
            hit: Hit = yield _lookup(cache, name, *callback, **options)
            keep(key.marks, names, name)
            if not isinstance(hit.value, dict) or (hit.level is L3 and self._response is not None):
                return hit
            names = hit.value["vary"]

    def _options(self, rules: Rules) -> dict[str, Any]:
        return {**rules.options, "ttl": rules.ttl, "error_ttl": 0, "tags": self.tags, "l1_serializer": for_l1}

    def _callback(self, cache: MLCache, rules: Rules, key: PageKey, names: list[str]) -> Callable[[], Any]:
        if _is_async(self.view):

            async def acallback() -> Any:
                return await arun(self._make(cache, rules, key, names))

            return acallback
        return lambda: run(self._make(cache, rules, key, names))

    def _make(self, cache: MLCache, rules: Rules, key: PageKey, names: list[str]) -> Steps[Any]:
        """Return the page rendered by the view. `names`: the headers that it varies on, as far as known."""
        request = self.request
        with _watched(request, rules.user) as used, _unconditional(request):
            response = yield from self._run()
        self._response = response
        if response.status_code >= 500 and response.status_code not in rules.statuses:
            # Serves a stale page if there is one; else this response is returned, and the next request tries again.
            raise SourceError(f"the view answered with status {response.status_code}")
        reason = refusal(request, response, rules, bool(used))
        if reason is not None or not isinstance(response, HttpResponse):
            log.debug("%s is not cached: %s", request.path, reason)
            return Fresh(PASS, PASS_TTL)
        others = _varies_on(response, rules) - set(names)
        life = lifetime(response, rules)
        page = page_of(response, life, rules)
        fresh = Fresh(page, life if life != rules.ttl else None)
        if not others:
            return fresh
        names = sorted(others | set(names))
        try:
            yield _lookup(cache, key.of(names), lambda: fresh, **self._options(rules))
        except (CacheError, LockTimeout, SharedDictError) as error:
            log.warning("%s could not be cached: %s", request.path, error)
        return Fresh({"vary": names}, fresh.ttl)

    def _run(self) -> Steps[HttpResponseBase]:
        response: HttpResponseBase = yield Step(self._now, self._anow)
        return response

    def _now(self) -> HttpResponseBase:
        response = self._finalize(self._call())
        return response.render() if _waits(response) else response  # type: ignore[no-any-return]

    async def _anow(self) -> HttpResponseBase:
        response = self._finalize(await self._call())
        return await sync_to_async(response.render)() if _waits(response) else response  # type: ignore[no-any-return]


def _lookup(cache: MLCache, *args: Any, **options: Any) -> Step:
    return Step(functools.partial(cache.lookup, **options), functools.partial(cache.alookup, **options), args)


def _is_async(view: Callable[..., Any]) -> bool:
    """Return whether it is a coroutine function, or `dispatch` of an async class (from `method_decorator`)."""
    owner = getattr(getattr(view, "func", view), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))


def _waits(response: Any) -> bool:
    """Return whether it is an unrendered `TemplateResponse`."""
    return not getattr(response, "is_rendered", True) and callable(getattr(response, "render", None))


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
    """Return the request without headers that would produce a partial or empty response."""
    removed: dict[str, Any] = {name: request.META.pop(name) for name in CONDITIONS if name in request.META}
    request.__dict__.pop("headers", None)
    try:
        yield
    finally:
        request.META.update(removed)
        request.__dict__.pop("headers", None)


@contextmanager
def _watched(request: HttpRequest, by_user: bool) -> Iterator[list[bool]]:
    """Yield a list that is non-empty afterwards if the session was used. For pages per user, the lookup of the user
    happens before and does not count.
    """
    session: Any = getattr(request, "session", None)
    used: list[bool] = []
    before = bool(getattr(session, "accessed", False))
    if by_user and before:
        session.accessed = False
    try:
        yield used
    finally:
        if getattr(session, "accessed", False):
            used.append(True)
        elif by_user and before:
            session.accessed = True
