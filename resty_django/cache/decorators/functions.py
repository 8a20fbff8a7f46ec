"""`@cached`: caches a function's results by the arguments of its calls.

`cached` validates the options and returns a decorator, which replaces the function by a `Cached` object. `CallKeys`
converts the arguments of a call to a key, and an `MLCache` finds the result or calls the function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
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
    values, that identifies the call. `depends_on`: models, their labels ("shop.Product"), or `invalidate_on(...)` for
    single rows or fields; a committed change of the rows deletes the results. `options`: as for a call of `MLCache.get`
    (`CacheOptions` explains them); a function passed as `tags` takes the arguments of the call.

    Place it above `@classmethod` and `@staticmethod`. An exception of the function reaches the caller and is not
    cached. The option `error_ttl` caches it: for this time, other processes raise `RemoteError` in its place.

    Raise `BadOption` for wrong options. Calls of the decorated function raise the errors of `MLCache.get`, and
    `TypeError` for arguments of unsupported types.
    """
    call_options = checked(options)
    if not isinstance(cache, MLCache | str):
        raise BadOption(f"cache must be a cache or its name, not {cache!r}. Write @cached() with parentheses.")
    if by is not None and key is not None:
        raise BadOption("by and key cannot be combined. Use only key, which receives self too.")
    for option, value in (("by", by), ("key", key), ("tags", options.get("tags"))):
        plain_function(value, f"{option} of @cached()")  # raises TypeError if async

    def decorate(decorated: Callable[P, R]) -> Cached[P, R]:
        function: Callable[P, R] = getattr(decorated, "__func__", decorated)  # of a class or static method
        qualified_name = getattr(function, "__qualname__", "<partial>")
        if is_generator_function(function):
            raise BadOption(f"@cached() cannot cache the generator of {qualified_name}(). Return a list instead.")
        if not name and "<" in qualified_name:
            raise BadOption(f"{function!r} has no unique name, as a function of a module has. Pass one with name=.")
        prefix = name or f"{function.__module__}.{qualified_name}"
        function_options = dict(call_options)
        if depends_on:
            per_object = by is not None and by is not type  # not one result for all objects of a class
            tags = tags_with_models(options.get("tags", ()), depends_on, function, cache, prefix, per_object)
            function_options["tags"] = tags
        return Cached(function, type(decorated), cache, CallKeys(function, prefix, by, key), function_options)

    return decorate


class Cached(Generic[P, R]):
    """A cached function, sync or async like the original function, which is `__wrapped__`.

    All methods take the function's arguments. Methods with the prefix `a` do the same for asyncio. `kind`: the class of
    the decorated object, which is `classmethod` or `staticmethod` for such methods.
    """

    name: str
    """The prefix of the keys."""
    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(
        self, function: Callable[P, R], kind: type, cache: MLCache | str, keys: CallKeys, options: Mapping[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        register_annotation(function)  # so that L2 can store the dataclasses and Structs that it returns
        self._kind = kind
        self._cache = cache
        self._keys = keys
        self.name = keys.name
        # The cache passes the arguments of a call to the callback and to the function `tags` as a tuple and a dict.
        self._callback: Callable[..., Any] = self._load
        self._get: Callable[..., Any] = MLCache.get_with
        if iscoroutinefunction(function):
            markcoroutinefunction(self)
            self._callback, self._get = self._load_async, MLCache.aget_with
        tags = options.get("tags")
        if callable(tags):
            options = {**options, "tags": lambda args, kwargs: tags(*args, **kwargs)}
        self.options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # the property `cache`, written out: to call it would take 5 % of a hit
        cache = mlcaches[self._cache] if isinstance(self._cache, str) else self._cache
        result: R = self._get(cache, self._keys.of(args, kwargs), self._callback, (args, kwargs), self.options)
        return result

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key in the cache."""
        return self._keys.of(args, kwargs)

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """Return the entry in the shared dictionary (L2), with its remaining time to live; see `MLCache.peek`."""
        return self.cache.peek(self._keys.of(args, kwargs))

    async def apeek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        return await self.cache.apeek(self._keys.of(args, kwargs))

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Delete the result in all processes."""
        self.cache.delete(self._keys.of(args, kwargs), on_error=self.options.get("on_error"))

    async def ainvalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        await self.cache.adelete(self._keys.of(args, kwargs), on_error=self.options.get("on_error"))

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function now, cache its result for all processes and return it. If it raises, the old one stays."""
        return self.cache.refresh_with(self._keys.of(args, kwargs), self._callback, (args, kwargs), self.options)

    async def arefresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await self.cache.arefresh_with(self._keys.of(args, kwargs), self._callback, (args, kwargs), self.options)

    @property
    def cache(self) -> MLCache:
        return mlcaches[self._cache] if isinstance(self._cache, str) else self._cache

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
        return f"<cached {self.name}>"


class BoundCached:
    """A cached method bound to an object, or a class method bound to a class. Other attributes come from `Cached`."""

    def __init__(self, cached: Cached[..., Any], owner: object) -> None:
        self.__func__ = cached
        self.__self__ = owner

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.__func__, name)
        is_method = callable(getattr(Cached, name, None))  # all of them take the function's arguments, `self` included
        return functools.partial(attribute, self.__self__) if is_method else attribute
