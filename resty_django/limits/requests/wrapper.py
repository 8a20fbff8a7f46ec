"""The view decorator: it asks the enforcer, then runs the view or returns the refusal."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from resty_django.callables import caller

from ..callers import request_settings
from ..callers.keys import digest
from .check import LimitCheck, report
from .enforcer import Enforcer
from .results import LimitResult, limits_of

V = TypeVar("V", bound=Callable[..., Any])


class EnforcerSource(Protocol):
    """Returns the current enforcer if it can change between requests; `aget` does not block."""

    def get(self) -> Enforcer: ...
    async def aget(self) -> Enforcer: ...


class ViewDecorator:
    """A decorator for views: the result of `@limit_req("10/s")` and the other decorators.

    `build`: creates the enforcer, or its source, from the name of a view. `max_delay`: the maximum number of seconds
    that a view sleeps (None: the setting MAX_DELAY in sync views, no limit in async views). `advises`: whether the view
    decides with `request.limits`, which then exists even if no limit applies.
    """

    def __init__(
        self, build: Callable[[str], Enforcer | EnforcerSource], max_delay: float | None, *, advises: bool = False
    ) -> None:
        if max_delay is not None and not max_delay >= 0:
            raise ValueError(f"max_delay of a limit must be at least 0, not {max_delay!r}.")
        self._build = build
        self._max_delay = max_delay
        self._advises = advises
        self._enforcers: dict[str, Enforcer | EnforcerSource] = {}

    def __call__(self, view: V) -> V:
        if isinstance(view, type):
            raise TypeError(
                f"A limit cannot decorate the class {view.__name__} itself. Write "
                f'@method_decorator(..., name="dispatch") above the class, or decorate one of its methods.'
            )
        owner = _owner(view)
        name = view_name(view, owner)
        enforcer = self._enforcers.get(name)
        if enforcer is None:
            enforcer = self._enforcers[name] = self._build(name)
        wrapped: Callable[..., Any]

        if iscoroutinefunction(view) or getattr(owner, "view_is_async", False):

            @functools.wraps(view)
            async def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase | None:
                in_force = enforcer if isinstance(enforcer, Enforcer) else await enforcer.aget()
                check = await in_force.acheck(_request(args), kwargs)
                if check is None and self._advises:
                    limits_of(_request(args))
                return await self._arespond(check, partial(view, *args, **kwargs))
        else:

            @functools.wraps(view)
            def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase | None:
                in_force = enforcer if isinstance(enforcer, Enforcer) else enforcer.get()
                decided = in_force.decide(_request(args), kwargs)
                if not isinstance(decided, LimitResult):
                    if decided is None and self._advises:
                        limits_of(_request(args))
                    return self._respond(decided, partial(view, *args, **kwargs))
                response: HttpResponseBase | None = view(*args, **kwargs)
                if response is not None:  # None is a mistake that Django explains
                    report(response.headers, (decided,))
                return response

        return cast("V", wrapped)

    def _respond(
        self, check: LimitCheck | None, view: Callable[[], HttpResponseBase | None]
    ) -> HttpResponseBase | None:
        """Return the response of the view, after the delay of the request, or the refusal."""
        if check is None:
            return view()
        if check.refused is not None:
            return check.refuse()
        try:
            if check.delay:
                longest = request_settings.current().max_delay if self._max_delay is None else self._max_delay
                if not check.wait_turn(longest):
                    return check.refuse()
            response = view()
        except BaseException:
            check.abandon()
            raise
        if response is None:  # a mistake that Django explains
            check.abandon()
            return None
        return check.finish(response)

    async def _arespond(self, check: LimitCheck | None, view: Callable[[], Any]) -> HttpResponseBase | None:
        """Run `_respond` for an async view, or for `dispatch` of an async class, which is a plain function."""
        if check is None:
            return await _awaited(view())
        if check.refused is not None:
            return await check.arefuse()
        try:
            if check.delay and not await check.await_turn(inf if self._max_delay is None else self._max_delay):
                return await check.arefuse()
            response = await _awaited(view())
        except BaseException:
            await check.aabandon()
            raise
        if response is None:
            await check.aabandon()
            return None
        return await check.afinish(response)


def _request(args: tuple[Any, ...]) -> HttpRequest:
    """Return the request from the arguments of a view: the first, or for a method the second."""
    request: HttpRequest = args[0] if hasattr(args[0], "META") else args[1]
    return request


async def _awaited(
    response: HttpResponseBase | Awaitable[HttpResponseBase | None] | None,
) -> HttpResponseBase | None:
    return await response if inspect.isawaitable(response) else response


def view_name(view: Any, owner: Any = None) -> str:
    """Return a unique name for a view or another function, which is the same in all processes.

    For views of one class, partials and objects, the name contains the arguments that they were created with, if these
    have a stable representation, and if that is not enough, the line where the limit is applied.
    """
    function, arguments = _unwrapped(view)
    if owner is not None:
        return f"{_qualified(type(owner))}.{function.__name__}"
    view_class = getattr(function, "view_class", None) or getattr(function, "cls", None)
    if view_class is None and hasattr(function, "__qualname__"):
        name = _qualified(function)
        if "<" in name and (code := getattr(function, "__code__", None)) is not None:
            name = f"{name}:{code.co_firstlineno}"
            if function.__name__ == "<lambda>":  # of several in one line; Python 3.12 knows no column of a constant
                column = next((position[2] for position in code.co_positions() if position[2]), "")
                name = f"{name}:{column or digest((code.co_consts, code.co_names))}"
        if function is view:
            return name
    else:
        name = _qualified(view_class or type(function))
        arguments.append(getattr(function, "view_initkwargs", None) or getattr(function, "initkwargs", None))
    text = repr([argument for argument in arguments if argument])
    if text != "[]" and " at 0x" not in text:
        name = f"{name}~{digest(text)}"
    places, place = _places.setdefault(name, []), caller()
    if place not in places:
        places.append(place)
    return name if place == places[0] else f"{name}@{place}"


_places: Final[dict[str, list[str]]] = {}
"""The lines where limits are applied to views of one name; the first has the name alone."""


def _qualified(view: Any) -> str:
    """Return the dotted name. DRF sets the name of the class behind `@api_view` to the function's, but not its
    qualified name.
    """
    name, qualified = view.__name__, view.__qualname__
    return f"{view.__module__}.{qualified if qualified.rpartition('.')[2] == name else name}"


def _unwrapped(view: Any) -> tuple[Any, list[Any]]:
    """Return the function of a partial, and the arguments of all partials around it."""
    arguments: list[Any] = []
    while isinstance(view, functools.partial):
        arguments += [view.args, view.keywords]
        view = view.func
    return view, arguments


def _owner(view: Any) -> Any:
    """Return the object of a bound method: `method_decorator` decorates bound methods for each request."""
    return getattr(_unwrapped(view)[0], "__self__", None)
