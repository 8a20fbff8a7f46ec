"""`@cached`: a function whose results are kept in a cache, each under the arguments of its call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, ParamSpec, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from .arguments import LONGEST, Values, all_plain, binder, path_of, shortened, text
from .errors import BadOption, CallbackFailed
from .handler import mlcaches
from .mlcache import MLCache
from .options import check
from .results import Peek

P = ParamSpec("P")
R = TypeVar("R")

BOUND: Final = frozenset({"key", "peek", "invalidate", "refresh", "apeek", "ainvalidate", "arefresh"})
"""The calls that take the arguments of the function, and so its `self`."""


def cached(
    cache: MLCache | str = "default",
    *,
    name: str | None = None,
    by: str | Callable[[Any], Any] | None = None,
    key: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Keep what a function or method returns, one value for each set of arguments.

        @cached(ttl=60)
        def load_product(number, language="en"): ...

        load_product(7)
        load_product.invalidate(7)

    `cache`: a cache, or its name in the settings. `name`: begins the keys; without it that is the module and name of
    the function. `by`: of a method, what tells one `self` from another: the name of an attribute, or a function of
    `self`; `type` where all objects of a class have the same results. `key`: a function of the arguments to what tells
    one call from another, or a tuple of that. `options`: those of `Options`.

    Write it above `@classmethod` and `@staticmethod`. A function that raises raises for the caller, and nothing is
    kept. Raises `BadOption`; the calls raise as `MLCache.get` does, and `TypeError` for arguments that cannot be part
    of a key.
    """
    check(options)
    if not isinstance(cache, MLCache | str):
        raise BadOption(f"cache must be a cache or its name, not {cache!r}. Write @cached() with brackets.")
    if by is not None and key is not None:
        raise BadOption("by and key cannot be given together: key is given self, too.")

    def decorate(function: Callable[P, R]) -> Cached[P, R]:
        inner: Any = getattr(function, "__func__", function)
        made = AsyncCached if iscoroutinefunction(inner) else Cached
        kind = type(function) if isinstance(function, classmethod | staticmethod) else None
        return made(inner, kind, cache, name or _name_of(inner), by, key, options)

    return decorate


class Cached(Generic[P, R]):
    """A function with a cache before it. `__wrapped__` is the function alone.

    All calls take the arguments of the function. Those with an `a` before the name are for asyncio.
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
        self.name = name
        self.options = options
        self._kind = kind
        self._caches: Mapping[str, MLCache] = mlcaches if isinstance(cache, str) else {"": cache}
        self._which = cache if isinstance(cache, str) else ""
        self._values, self._names = _values(function, by, key)
        self._source = _source(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        values = self._values(*args, **kwargs)
        key = f"{self.name}{values!r}" if all_plain(map(type, values)) else self._key(values)
        if len(key) > LONGEST:
            key = shortened(key)
        try:
            return self._caches[self._which].get_with(key, self._source, (args, kwargs), self.options)  # type: ignore[no-any-return]
        except CallbackFailed as failed:
            error = failed.error
        raise error

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The key in the cache."""
        return shortened(self._key(self._values(*args, **kwargs)))

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """What L2 has, as `MLCache.peek` tells it."""
        return self.cache.peek(self.key(*args, **kwargs))

    async def apeek(self, *args: P.args, **kwargs: P.kwargs) -> Peek | None:
        """As `peek`."""
        return await self.cache.apeek(self.key(*args, **kwargs))

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Forget the result, in all processes."""
        self.cache.delete(self.key(*args, **kwargs))

    async def ainvalidate(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """As `invalidate`."""
        await self.cache.adelete(self.key(*args, **kwargs))

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function now, keep its result for all processes, and return it. Where it raises, the old one
        stays."""
        try:
            return self.cache.refresh(self.key(*args, **kwargs), self._source, args, kwargs, **self.options)
        except CallbackFailed as failed:
            error = failed.error
        raise error

    async def arefresh(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """As `refresh`."""
        try:
            return await self.cache.arefresh(self.key(*args, **kwargs), self._source, args, kwargs, **self.options)
        except CallbackFailed as failed:
            error = failed.error
        raise error

    @property
    def cache(self) -> MLCache:
        return self._caches[self._which]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._kind is classmethod:
            return Bound(self, owner)
        return self if instance is None or self._kind is staticmethod else Bound(self, instance)

    def __reduce__(self) -> str:
        """Pickled by name, as functions are."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<cached {self.name}>"

    def _key(self, values: tuple[Any, ...]) -> str:
        return self.name + text(values, self._names, self.__name__)


class AsyncCached(Cached[P, R]):
    """The same for a coroutine function."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        markcoroutinefunction(self)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:  # type: ignore[override]
        values = self._values(*args, **kwargs)
        key = f"{self.name}{values!r}" if all_plain(map(type, values)) else self._key(values)
        if len(key) > LONGEST:
            key = shortened(key)
        try:
            return await self._caches[self._which].aget_with(key, self._source, (args, kwargs), self.options)
        except CallbackFailed as failed:
            error = failed.error
        raise error


class Bound:
    """A cached method of one object, or a class method of one class. Everything else is that of the `Cached`."""

    def __init__(self, cached: Cached[..., Any], to: object) -> None:
        self.__func__ = cached
        self.__self__ = to

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__func__, name)
        return functools.partial(found, self.__self__) if name in BOUND else found


def _name_of(function: Callable[..., Any]) -> str:
    if "<" in function.__qualname__:
        raise BadOption(
            f"{function.__qualname__} is made inside of a function, and another may have the same name: "
            "give it one of its own with name=."
        )
    return f"{function.__module__}.{function.__qualname__}"


def _source(function: Callable[..., Any]) -> Callable[..., Any]:
    """The callback of the cache."""
    if iscoroutinefunction(function):

        async def awaited(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return await function(*args, **kwargs)

        return awaited
    return lambda args, kwargs: function(*args, **kwargs)


def _values(
    function: Callable[..., Any], by: str | Callable[[Any], Any] | None, key: Callable[..., Any] | None
) -> tuple[Values, tuple[str, ...]]:
    """What tells one call from another, as a function of the arguments, and the names of that for errors."""
    if key is not None:

        def of_key(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return (key(*args, **kwargs),)

        return of_key, ("key",)
    bind, names = binder(function)
    if by is None:
        return bind, names
    if not names:
        raise BadOption(f"by is for methods, and {function.__qualname__}() has no self.")

    def of_object(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        me, *others = bind(*args, **kwargs)
        mine = None if by is type else getattr(me, by) if isinstance(by, str) else by(me)
        return (path_of(type(me)), mine, *others)

    return of_object, ("self", "self", *names[1:])


__all__ = ["Cached", "cached"]
