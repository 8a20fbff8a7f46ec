"""`@cached`: caches a function's results by the arguments of its calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, ParamSpec, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.db.models import QuerySet

from resty_django.callables import is_generator_function, plain_function

from ..errors import BadOption
from ..mlcache.cache import MLCache
from ..mlcache.options import CacheOptions, checked
from ..mlcache.registry import mlcaches
from ..mlcache.results import Peek
from ..model_dependencies.dependency import Depends, tags_with_models
from ..serialization.classes import register_annotation
from ..tags.names import Tags
from .keys import LONGEST, Values, all_plain, binder, path_of, shortened, text

P = ParamSpec("P")
R = TypeVar("R")

BOUND: Final = frozenset({"key", "peek", "invalidate", "refresh", "apeek", "ainvalidate", "arefresh"})
"""The methods that take the function's arguments, including its `self`."""


def cached(
    cache: MLCache | str = "default",
    *,
    name: str | None = None,
    by: str | Callable[[Any], Any] | None = None,
    key: Callable[..., Any] | None = None,
    depends_on: Depends = (),
    **options: Unpack[CacheOptions],
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
    change of their rows deletes the results. `options`: the fields of `Options`; a function passed as `tags` takes the
    arguments of the call.

    Place it above `@classmethod` and `@staticmethod`. Exceptions of the function reach the caller, and nothing is
    cached, except with `error_ttl`; calls in other processes then raise `RemoteError`. Raise `BadOption`; calls raise
    the errors of `MLCache.get`, and `TypeError` for arguments of unsupported types.
    """
    seconds = checked(options)
    if not isinstance(cache, MLCache | str):
        raise BadOption(f"cache must be a cache or its name, not {cache!r}. Write @cached() with parentheses.")
    if by is not None and key is not None:
        raise BadOption("by and key cannot be combined. Use only key, which receives self too.")
    for option, function in (("by", by), ("key", key), ("tags", options.get("tags"))):
        plain_function(function, f"{option} of @cached()")

    def decorate(function: Callable[P, R]) -> Cached[P, R]:
        inner: Any = getattr(function, "__func__", function)
        if is_generator_function(inner):
            raise BadOption(f"@cached() cannot cache the generator of {inner.__qualname__}(). Return a list instead.")
        kind = type(function) if isinstance(function, classmethod | staticmethod) else None
        full_name = name or _name_of(inner)
        tags = _tags(inner, options.get("tags", ()), depends_on, cache, full_name, by not in (None, type))
        return Cached(inner, kind, cache, full_name, by, key, {**seconds, "tags": tags} if tags else seconds)

    return decorate


class Cached(Generic[P, R]):
    """A cached function, sync or async like the original function, which is `__wrapped__`.

    All methods take the function's arguments. Methods with the prefix `a` are for asyncio.
    """

    __wrapped__: Callable[P, R]
    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[..., Any],
        kind: type | None,
        cache: MLCache | str,
        name: str,
        by: str | Callable[[Any], Any] | None,
        key: Callable[..., Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        register_annotation(function)
        self.name = name
        self.options = options
        self._kind = kind
        self._caches: Mapping[str, MLCache] = mlcaches if isinstance(cache, str) else {"": cache}
        self._cache_name = cache if isinstance(cache, str) else ""
        self._values, self._names = _values(function, by, key)
        self._callback = _callback(function)
        self._get: Callable[..., Any] = MLCache.get_with
        if iscoroutinefunction(function):
            markcoroutinefunction(self)
            self._get = MLCache.aget_with

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        values = self._values(*args, **kwargs)
        key = f"{self.name}{values!r}" if all_plain(map(type, values)) else self._key(values)
        if len(key) > LONGEST:
            key = shortened(key)
        cache = self._caches[self._cache_name]
        return self._get(cache, key, self._callback, (args, kwargs), self.options)  # type: ignore[no-any-return]

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Return the key in the cache."""
        return shortened(self._key(self._values(*args, **kwargs)))

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """Return the entry in L2; see `MLCache.peek`."""
        return self.cache.peek(self.key(*args, **kwargs))

    async def apeek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """Do the same as `peek`."""
        return await self.cache.apeek(self.key(*args, **kwargs))

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Delete the result in all processes."""
        self.cache.delete(self.key(*args, **kwargs), on_error=self.options.get("on_error"))

    async def ainvalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Do the same as `invalidate`."""
        await self.cache.adelete(self.key(*args, **kwargs), on_error=self.options.get("on_error"))

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function now, cache its result for all processes and return it. If it raises, the old one stays."""
        return self.cache.refresh_with(self.key(*args, **kwargs), self._callback, (args, kwargs), self.options)

    async def arefresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Do the same as `refresh`."""
        return await self.cache.arefresh_with(self.key(*args, **kwargs), self._callback, (args, kwargs), self.options)

    @property
    def cache(self) -> MLCache:
        return self._caches[self._cache_name]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._kind is classmethod:
            return Bound(self, owner)
        return self if instance is None or self._kind is staticmethod else Bound(self, instance)

    def __reduce__(self) -> str:
        """Pickle by name, as for functions."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<cached {self.name}>"

    def _key(self, values: tuple[Any, ...]) -> str:
        return self.name + text(values, self._names, self.__name__)


class Bound:
    """A cached method bound to an object, or a class method bound to a class. Other attributes come from `Cached`."""

    def __init__(self, cached: Cached[..., Any], owner: object) -> None:
        self.__func__ = cached
        self.__self__ = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.__func__, name)
        return functools.partial(attribute, self.__self__) if name in BOUND else attribute


def _name_of(function: Callable[..., Any]) -> str:
    if "<" in getattr(function, "__qualname__", "<partial>"):
        raise BadOption(f"{function!r} has no unique name, as a function of a module has. Pass one with name=.")
    return f"{function.__module__}.{function.__qualname__}"


def _tags(
    function: Callable[..., Any], tags: Tags, depends_on: Depends, cache: MLCache | str, name: str, by_object: bool
) -> Tags:
    """Return the option `tags` for the callback, which takes the arguments of the call as two objects."""
    if depends_on:
        tags = tags_with_models(tags, depends_on, function, cache, name, by_object)
    return (lambda args, kwargs: tags(*args, **kwargs)) if callable(tags) else tags


def _callback(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the callback for the cache."""
    if iscoroutinefunction(function):

        async def awaited(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            value = await function(*args, **kwargs)
            return [item async for item in value] if isinstance(value, QuerySet) else value

        return awaited

    def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = function(*args, **kwargs)
        return list(value) if isinstance(value, QuerySet) else value

    return called


def _values(
    function: Callable[..., Any], by: str | Callable[[Any], Any] | None, key: Callable[..., Any] | None
) -> tuple[Values, tuple[str, ...]]:
    """Return a function that maps a call's arguments to the values that identify it, and their names for errors."""
    if key is not None:

        def of_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return (key(*args, **kwargs),)

        return of_key, ("key",)
    bind, names = binder(function)
    if by is None:
        return bind, names
    if not names:
        raise BadOption(f"by is for methods, but {function.__qualname__}() has no self. Remove by.")

    def of_object(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        instance, *values = bind(*args, **kwargs)
        identity = None if by is type else getattr(instance, by) if isinstance(by, str) else by(instance)
        if identity is None and by is not type:
            raise ValueError(
                f"{function.__qualname__}() cannot be cached: by={by!r} is None for {instance!r}, and all objects with "
                "None would share one result. Save the object first."
            )
        return (path_of(type(instance)), identity, *values)

    return of_object, ("self", "self", *names[1:])
