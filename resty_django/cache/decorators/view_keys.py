"""Keys of pages, and invalidation of all pages of a URL or a view.

A page's key contains two random marks, one for its path and one for its view, which are stored in the cache, too.
Deleting a mark invalidates all pages that contain it, including variants and pages that are being rendered at that
moment.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.timezone import get_current_timezone_name
from django.utils.translation import get_language

from resty_django.sansio import Step, Steps
from resty_django.users import load_user, user_of

from ..errors import BadOption
from ..mlcache.cache import MLCache
from ..mlcache.options import CallOptions
from ..mlcache.registry import mlcaches
from .cacheability import Rules
from .keys import values_text

MAX_PATH_LENGTH: Final = 100
"""Maximum length of a path in a key in characters; a longer path is replaced by its beginning and a hash."""


@dataclass(frozen=True, slots=True)
class PageKey:
    """The key of a requested page.

    `marks`: of the path and of the view. `variant`: the text of all else that the page depends on.
    """

    request: HttpRequest
    path: str
    marks: tuple[str, str]
    variant: str

    def of(self, names: Collection[str]) -> str:
        """Return the key of the page for the values of the headers that it varies on."""
        text = f"{self.variant}{_headers(self.request, names)}"
        return f"page:{self.path[:MAX_PATH_LENGTH]}#{_digest(text)}"


def page_key(request: HttpRequest, view: Callable[..., object], cache: MLCache, rules: Rules) -> Steps[PageKey]:
    """Return the key of the requested page. Raise `TypeError` for values of unsupported types."""
    path = request.path
    marks = (
        (yield from _mark(cache, url_key(path), rules)),
        (yield from _mark(cache, view_key(name_of(request, view)), rules)),
    )
    parts = (
        1,  # the format of keys and pages; pages of other formats are never found
        *marks,
        f"{view.__module__}.{view.__qualname__}",
        request.scheme,
        request.get_host(),
        path,
        query_of(request, rules.query),
        get_language() if rules.language and settings.USE_I18N else None,
        get_current_timezone_name() if rules.language and settings.USE_TZ else None,
    )
    variant = repr(parts)
    if rules.user:
        user = yield Step(_user, _auser, (request,))
        variant += values_text((user,), ("user",), "cache_view")
    if rules.key is not None:
        variant += values_text((rules.key(request),), ("key",), "cache_view")
    return PageKey(request, path, marks, variant + _headers(request, rules.headers))


def url_key(path: str) -> str:
    """Return the key of a path's mark."""
    if len(path) > MAX_PATH_LENGTH:
        path = f"{path[:MAX_PATH_LENGTH]}#{_digest(path)}"
    return f"page-url:{path}"


def view_key(name: str) -> str:
    """Return the key of a view's mark."""
    return f"page-view:{name}"


def invalidate_url(url: str, cache: MLCache | str = "default") -> None:
    """Delete all pages of a path, for all hosts and variants: `invalidate_url(reverse("shop:products"))`.

    `url`: a path as returned by `reverse`, or a full URL; its query is ignored. Raise the errors of `MLCache.delete`.
    """
    _cache(cache).delete(url_key(unquote(urlsplit(url).path)))


async def ainvalidate_url(url: str, cache: MLCache | str = "default") -> None:
    """Do the same as `invalidate_url`."""
    await _cache(cache).adelete(url_key(unquote(urlsplit(url).path)))


def invalidate_view(name: str, cache: MLCache | str = "default") -> None:
    """Delete all pages of a view: `invalidate_view("shop:product")`. Raise the errors of `MLCache.delete`.

    `name`: the name of the URL with its namespaces; for a URL without a name, the module and name of its view.
    """
    _cache(cache).delete(view_key(name))


async def ainvalidate_view(name: str, cache: MLCache | str = "default") -> None:
    """Do the same as `invalidate_view`."""
    await _cache(cache).adelete(view_key(name))


def _cache(cache: MLCache | str) -> MLCache:
    return mlcaches[cache] if isinstance(cache, str) else cache


def _mark(cache: MLCache, key: str, rules: Rules) -> Steps[str]:
    ttl = max(rules.ttl * 10, 3600) if rules.ttl else 0  # when a mark expires, so do its pages
    options: CallOptions = {"ttl": ttl, "jitter": 0, "stale_while_revalidate": 0, "early": 0}
    get, aget = functools.partial(cache.get, **options), functools.partial(cache.aget, **options)
    mark: str = yield Step(get, aget, (key, secrets.token_hex, 8))
    return mark


def name_of(request: HttpRequest, view: Callable[..., object]) -> str:
    """Return the name of the URL with its namespaces, or the view's module and name."""
    match = request.resolver_match
    return f"{view.__module__}.{view.__qualname__}" if match is None else match.view_name


def query_of(request: HttpRequest, names: tuple[str, ...] | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the query parameters with these names, sorted; None: all."""
    parameters = request.GET.lists()
    return tuple(
        sorted((name, tuple(map(str, values))) for name, values in parameters if names is None or name in names)
    )


def _headers(request: HttpRequest, names: Collection[str]) -> str:
    return repr([(name, request.headers.get(name)) for name in sorted(map(str.lower, names))])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _user(request: HttpRequest) -> object:
    try:
        user = user_of(request, "cache_view(user=True)")
    except ImproperlyConfigured as error:
        raise BadOption(str(error)) from None
    return user.pk if user is not None and user.is_authenticated else None


async def _auser(request: HttpRequest) -> object:
    if not hasattr(request, "auser"):
        return await sync_to_async(_user)(request)
    await load_user(request)
    return _user(request)
