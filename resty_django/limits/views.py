"""A decorator of views that puts a guard before them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpResponseBase

from . import policy
from .guard import SHORTEST_SLEEP, Guard
from .headers import show
from .passage import Limit, Passage
from .site import site

V = TypeVar("V", bound=Callable[..., Any])


class Decorator:
    """Decorates views. `build` makes, for the name of a view, its guard, or a function that gives the present one."""

    def __init__(self, build: Callable[[str], Guard | Callable[[], Guard]], max_delay: float | None) -> None:
        if max_delay is not None and not max_delay >= 0:
            raise ValueError(f"max_delay of a limit is at least 0, not {max_delay!r}.")
        self._build = build
        self._max_delay = max_delay
        self._guards: dict[str, Guard | Callable[[], Guard]] = {}

    def __call__(self, view: V) -> V:
        if isinstance(view, type):
            raise TypeError(f'A limit of the class {view.__name__} is @method_decorator(..., name="dispatch") on it.')
        owner = _owner(view)
        name = name_of(view, owner)
        made = self._guards.get(name)
        if made is None:
            made = self._guards[name] = self._build(name)
        longest = self._max_delay
        wrapped: Callable[..., Any]

        if iscoroutinefunction(view) or getattr(owner, "view_is_async", False):

            @functools.wraps(view)
            async def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase:
                if isinstance(made, Guard):
                    return await arun(made, view, args, kwargs, longest)
                await policy.aready()
                return await arun(made(), view, args, kwargs, longest)
        elif isinstance(made, Guard) and made.plain is not None:
            wrapped = functools.wraps(view)(_quick(made, made.plain, view, longest))
        else:

            @functools.wraps(view)
            def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase:
                return run(made if isinstance(made, Guard) else made(), view, args, kwargs, longest)

        return cast("V", wrapped)


def _quick(guard: Guard, limit: Limit, view: Callable[..., Any], longest: float | None) -> Callable[..., Any]:
    """The usual case, written out: it has to be quick."""
    key_of, hit, shown, nodelay = limit.key.of, limit.limiter.hit, limit.shown, limit.nodelay

    def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase:
        request = args[0] if hasattr(args[0], "META") else args[1]
        here = site()
        if here.exempt is not None:
            return run(guard, view, args, kwargs, longest)
        key = key_of(request, kwargs)
        if key is None:
            return view(*args, **kwargs)  # type: ignore[no-any-return]
        decision = hit(key)
        at_once = nodelay or not (here.max_delay if longest is None else longest) or decision.delay < SHORTEST_SLEEP
        if at_once and decision.allowed and not decision.failed:
            response: HttpResponseBase = view(*args, **kwargs)
            if here.headers:
                show(response.headers, shown, decision)
            return response
        passage = Passage(request)
        passage.note(limit, key, decision)
        return _go_on(passage, view, args, kwargs, longest)

    return wrapped


def run(
    guard: Guard, view: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], longest: float | None
) -> HttpResponseBase:
    """The response of the view, or the one that refuses."""
    passage = guard.ask(_request(args), kwargs)
    if passage is None:
        return view(*args, **kwargs)  # type: ignore[no-any-return]
    return _go_on(passage, view, args, kwargs, longest)


def _go_on(
    passage: Passage, view: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], longest: float | None
) -> HttpResponseBase:
    if passage.refused is not None:
        return passage.refuse()
    try:
        if passage.delay >= SHORTEST_SLEEP:
            time.sleep(min(passage.delay, site().max_delay if longest is None else longest))
            passage.begin()
        response = view(*args, **kwargs)
    except BaseException:
        passage.leave()
        raise
    return passage.finish(response)


async def arun(
    guard: Guard, view: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], longest: float | None
) -> HttpResponseBase:
    """As `run`, for async views."""
    passage = await guard.aask(_request(args), kwargs)
    if passage is None:
        return await _awaited(view(*args, **kwargs))
    if passage.refused is not None:
        return await passage.arefuse()
    try:
        if passage.delay >= SHORTEST_SLEEP:
            await asyncio.sleep(passage.delay if longest is None else min(passage.delay, longest))
            passage.begin()
        response = await _awaited(view(*args, **kwargs))
    except BaseException:
        await passage.aleave()
        raise
    return await passage.afinish(response)


def _request(args: tuple[Any, ...]) -> Any:
    """The request among the arguments of a view: the first, but of a method the second."""
    return args[0] if hasattr(args[0], "META") else args[1]


async def _awaited(answer: Any) -> HttpResponseBase:
    """`dispatch` of an async class-based view is a plain function, which returns what is to be awaited."""
    return cast("HttpResponseBase", await answer if inspect.isawaitable(answer) else answer)


def name_of(view: Any, owner: Any = None) -> str:
    """The name of a view, the same in all processes, and another for each view."""
    if owner is not None:
        function = _unwrapped(view)
        return f"{_qualified(type(owner))}.{function.__name__}"
    found = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if found is not None:
        return _qualified(found)
    function = _unwrapped(view)
    if not hasattr(function, "__qualname__"):
        function = type(function)
    name = _qualified(function)
    code = getattr(function, "__code__", None)
    return f"{name}:{code.co_firstlineno}" if code is not None and "<" in name else name


def _qualified(thing: Any) -> str:
    """DRF gives the class behind `@api_view` the name of the function, but not its qualified name."""
    name, qualified = thing.__name__, thing.__qualname__
    return f"{thing.__module__}.{qualified if qualified.rpartition('.')[2] == name else name}"


def _unwrapped(view: Any) -> Any:
    while isinstance(view, functools.partial):
        view = view.func
    return view


def _owner(view: Any) -> Any:
    """The object whose method it is: `method_decorator` decorates bound methods, anew with each request."""
    return getattr(_unwrapped(view), "__self__", None)


__all__ = ["Decorator", "arun", "name_of", "run"]
