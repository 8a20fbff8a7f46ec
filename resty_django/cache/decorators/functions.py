"""`@cached`: caches a function's results by the arguments of its calls.

`cached` validates the options and returns a decorator, which replaces the function by a `Cached` object. `CallKeys`
converts the arguments of a call to a key, and an `MLCache` finds the result or calls the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db.models import QuerySet

from resty_django.callables import is_generator_function, plain_function

from ..errors import BadOption
from ..mlcache.cache import MLCache
from ..mlcache.options import CallOptions, checked
from ..mlcache.registry import mlcaches
from ..mlcache.results import Peek
from ..model_dependencies.dependency import Depends, tags_with_models
from ..serialization.classes import register_annotation
from .keys import CallKeys

P = ParamSpec("P")
R = TypeVar("R")


def cached(
    cache: MLCache | str = "default",
    *,
    name: str | None = None,
    by: str | Callable[[Any], object] | None = None,
    key: Callable[..., object] | None = None,
    depends_on: Depends = (),
    **options: Unpack[CallOptions],
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Cache the return values of a function or method, one per set of arguments.

        @cached(ttl=60)
        def load_product(number, language="en"): ...

        load_product(7)
        load_product.invalidate(7)

    `cache`: a cache, or its name in the settings. `name`: prefix of the keys; default: the function's module and name.
    `by`: for methods, how to identify `self`: the name of an attribute, or a function of `self`; `type` if all objects
    of a class share their results. `key`: a function that takes the arguments and returns a value, or a tuple of
    values, that identifies the call. `depends_on`: models, their labels, or results of `invalidate_on`; a committed
    change of their rows deletes the results. `options`: the fields of `CacheOptions`; a function passed as `tags` takes
    the arguments of the call.

    Place it above `@classmethod` and `@staticmethod`. Exceptions of the function reach the caller, and nothing is
    cached, except with `error_ttl`; calls in other processes then raise `RemoteError`. Raise `BadOption`; calls raise
    the errors of `MLCache.get`, and `TypeError` for arguments of unsupported types.
    """
    call_options = checked(options)
    if not isinstance(cache, MLCache | str):
        raise BadOption(f"cache must be a cache or its name, not {cache!r}. Write @cached() with parentheses.")
    if by is not None and key is not None:
        raise BadOption("by and key cannot be combined. Use only key, which receives self too.")
    for option, value in (("by", by), ("key", key), ("tags", options.get("tags"))):
        plain_function(value, f"{option} of @cached()")

    def decorate(decorated: Callable[P, R]) -> Cached[P, R]:
        function: Callable[P, R] = getattr(decorated, "__func__", decorated)  # of a class or static method
        qualified_name = getattr(function, "__qualname__", "<partial>")
        if is_generator_function(function):
            raise BadOption(f"@cached() cannot cache the generator of {qualified_name}(). Return a list instead.")
        if name is None and "<" in qualified_name:
            raise BadOption(f"{function!r} has no unique name, as a function of a module has. Pass one with name=.")
        prefix = name or f"{function.__module__}.{qualified_name}"
        tags = options.get("tags", ())
        if depends_on:
            tags = tags_with_models(tags, depends_on, function, cache, prefix, by_object=by not in (None, type))
        callback_tags = (lambda args, kwargs: tags(*args, **kwargs)) if callable(tags) else tags
        return Cached(decorated, cache, CallKeys(function, prefix, by, key), {**call_options, "tags": callback_tags})

    return decorate


class Cached(Generic[P, R]):
    """A cached function, sync or async like the original function, which is `__wrapped__`.

    All methods take the function's arguments. Methods with the prefix `a` are for asyncio.
    """

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(
        self, decorated: Callable[P, R], cache: MLCache | str, keys: CallKeys, options: dict[str, Any]
    ) -> None:
        function = getattr(decorated, "__func__", decorated)
        functools.update_wrapper(self, function)
        register_annotation(function)
        self.options = options
        self._kind: object = type(decorated)
        self._cache = cache
        self._keys = keys
        self._is_async = iscoroutinefunction(function)
        self._callback = self._load_async if self._is_async else self._load
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        cache = self.cache
        get: Callable[..., Any] = cache.aget_with if self._is_async else cache.get_with
        result: R = get(self._keys.of(args, kwargs), self._callback, (args, kwargs), self.options)
        return result

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key in the cache."""
        return self._keys.of(args, kwargs)

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """Return the entry in L2; see `MLCache.peek`."""
        return self.cache.peek(self._keys.of(args, kwargs))

    async def apeek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """Do the same as `peek`."""
        return await self.cache.apeek(self._keys.of(args, kwargs))

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Delete the result in all processes."""
        self.cache.delete(self._keys.of(args, kwargs), on_error=self.options.get("on_error"))

    async def ainvalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do the same as `invalidate`."""
        await self.cache.adelete(self._keys.of(args, kwargs), on_error=self.options.get("on_error"))

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function now, cache its result for all processes and return it. If it raises, the old one stays."""
        return self.cache.refresh_with(self._keys.of(args, kwargs), self._callback, (args, kwargs), self.options)

    async def arefresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do the same as `refresh`."""
        return await self.cache.arefresh_with(self._keys.of(args, kwargs), self._callback, (args, kwargs), self.options)

    @property
    def cache(self) -> MLCache:
        return mlcaches[self._cache] if isinstance(self._cache, str) else self._cache

    # The cache passes the arguments of a call to its callback as two objects, a tuple and a dict.

    def _load(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        result: object = self.__wrapped__(*args, **kwargs)
        return list(result) if isinstance(result, QuerySet) else result

    async def _load_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        coroutine: Any = self.__wrapped__(*args, **kwargs)
        result: object = await coroutine
        return [row async for row in result] if isinstance(result, QuerySet) else result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._kind is classmethod:
            return BoundCached(self, owner)
        return self if instance is None or self._kind is staticmethod else BoundCached(self, instance)

    def __reduce__(self) -> str:
        """Pickle by name, as for functions."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<cached {self._keys.name}>"


class BoundCached:
    """A cached method bound to an object, or a class method bound to a class. Other attributes come from `Cached`."""

    def __init__(self, cached: Cached[..., Any], owner: object) -> None:
        self.__func__ = cached
        self.__self__ = owner

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.__func__, name)
        takes_arguments = name in {"key", "peek", "invalidate", "refresh", "apeek", "ainvalidate", "arefresh"}
        return functools.partial(attribute, self.__self__) if takes_arguments else attribute
