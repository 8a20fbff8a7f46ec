"""The keys of pages, and what makes all pages of one URL or one view invalid.

The key of a page has two random marks in it, that of its path and that of its view. They are in the cache, too. To
forget one is to have all pages under it forgotten, whatever they vary on, and also those that are being made just now.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import get_language

from resty_django.events.steps import Step, Steps

from .arguments import text
from .errors import BadOption
from .handler import mlcaches
from .mlcache import MLCache
from .page_rules import Rules

LAYOUT: Final = 1
"""Of keys and pages. Pages of another one are never found."""
SHORTEST_MARK: Final = 3600.0
"""Seconds that a mark lives at least. With it go the pages under it."""
LONGEST_PATH: Final = 100

Vary = Callable[[Collection[str]], str]
"""From the names of headers to the key of the page that varies on these, too."""


def page_key(request: HttpRequest, view: Callable[..., Any], cache: MLCache, rules: Rules) -> Steps[Vary]:
    """What gives the keys of the page that the request asks for. Raises `TypeError` for what cannot be in a key."""
    path = request.path
    marks = (
        (yield from _mark(cache, url_key(path), rules)),
        (yield from _mark(cache, view_key(_name_of(request, view)), rules)),
    )
    texts = (
        LAYOUT,
        *marks,
        f"{view.__module__}.{view.__qualname__}",
        request.scheme,
        request.get_host(),
        path,
        _query(request, rules.query),
        get_language() if rules.language and settings.USE_I18N else None,
        get_current_timezone_name() if rules.language and settings.USE_TZ else None,
    )
    begin = repr(texts)
    if rules.user:
        user = yield Step(_user, _auser, (request,))
        begin += text((user,), ("user",), "cache_view")
    if rules.key is not None:
        begin += text((rules.key(request),), ("key",), "cache_view")
    declared = _headers(request, rules.headers)

    def key(names: Collection[str]) -> str:
        whole = f"{begin}{declared}{_headers(request, names)}"
        digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        return f"page:{path[:LONGEST_PATH]}#{digest}"

    return key


def url_key(path: str) -> str:
    """The key of the mark of a path."""
    if len(path) > LONGEST_PATH:
        digest = hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        path = f"{path[:LONGEST_PATH]}#{digest}"
    return f"page-url:{path}"


def view_key(name: str) -> str:
    """The key of the mark of a view."""
    return f"page-view:{name}"


def invalidate_url(url: str, cache: MLCache | str = "default") -> None:
    """Forget all pages of a path, on all hosts and of all variations: `invalidate_url(reverse("shop:products"))`.

    `url`: a path as `reverse` gives it, or an address; its query does not count. Raises as `MLCache.delete`.
    """
    _cache(cache).delete(url_key(unquote(urlsplit(url).path)))


async def ainvalidate_url(url: str, cache: MLCache | str = "default") -> None:
    """As `invalidate_url`."""
    await _cache(cache).adelete(url_key(unquote(urlsplit(url).path)))


def invalidate_view(name: str, cache: MLCache | str = "default") -> None:
    """Forget all pages of a view: `invalidate_view("shop:product")`. Raises as `MLCache.delete`.

    `name`: that of the URL with its namespaces; of a URL without a name the module and name of its view.
    """
    _cache(cache).delete(view_key(name))


async def ainvalidate_view(name: str, cache: MLCache | str = "default") -> None:
    """As `invalidate_view`."""
    await _cache(cache).adelete(view_key(name))


def _cache(given: MLCache | str) -> MLCache:
    return mlcaches[given] if isinstance(given, str) else given


def _mark(cache: MLCache, key: str, rules: Rules) -> Steps[str]:
    ttl = max(rules.ttl * 10, SHORTEST_MARK) if rules.ttl else 0
    options = {"ttl": ttl, "jitter": 0, "stale_while_revalidate": 0}
    get, aget = (functools.partial(call, key, _new_mark, **options) for call in (cache.get, cache.aget))
    mark: str = yield Step(get, aget)
    return mark


def _new_mark() -> str:
    return secrets.token_hex(8)


def _name_of(request: HttpRequest, view: Callable[..., Any]) -> str:
    match = request.resolver_match
    return f"{view.__module__}.{view.__qualname__}" if match is None else match.view_name


def _query(request: HttpRequest, wanted: tuple[str, ...] | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    given = request.GET.lists()
    return tuple(sorted((name, tuple(map(str, values))) for name, values in given if wanted is None or name in wanted))


def _headers(request: HttpRequest, names: Collection[str]) -> str:
    return repr([(name, request.headers.get(name)) for name in sorted(map(str.lower, names))])


def _user(request: HttpRequest) -> Any:
    user = getattr(request, "user", None)
    if user is None:
        raise BadOption("cache_view(user=True) needs request.user: add AuthenticationMiddleware to MIDDLEWARE.")
    return user.pk if user.is_authenticated else None


async def _auser(request: HttpRequest) -> Any:
    if not hasattr(request, "auser"):
        return await sync_to_async(_user)(request)
    user = await request.auser()
    return user.pk if user.is_authenticated else None


__all__ = [
    "Vary",
    "ainvalidate_url",
    "ainvalidate_view",
    "invalidate_url",
    "invalidate_view",
    "page_key",
    "url_key",
    "view_key",
]
