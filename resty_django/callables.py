"""Functions that a site passes in: checks of what a call would do, and calls that take plain and coroutine functions.

A function may return a coroutine without being a coroutine function: a decorator that is not async wraps it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from types import FrameType
from typing import Any, Final, ParamSpec, TypeGuard, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.utils.module_loading import import_string

P = ParamSpec("P")
T = TypeVar("T")

_NOT_AWAITABLE: Final = frozenset({type(None), str, int, float, bool, bytes, list, tuple, dict, set})
"""Frequent types of results."""


def caller() -> str:
    """Return the line outside of this package that called it, as "shop.services:12"; "" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] != __name__.partition(".")[0]:
            return f"{module}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_async(function: Callable[P, object]) -> TypeGuard[Callable[P, Awaitable[Any]]]:
    """Return whether a call returns a coroutine; partials and objects with `__call__` are resolved."""
    while isinstance(function, functools.partial):
        function = function.func
    return iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def is_generator_function(function: object) -> bool:
    """Return whether a call only creates a generator, sync or async, and runs no code yet."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def plain_function(function: T, name: str) -> T:
    """Return the argument, whatever it is. Raise `TypeError` if it is a function that returns a coroutine.

    `name` says what it is, for example "exempt of a limit".
    """
    if callable(function) and is_async(function):
        raise TypeError(f"{name} must be a plain function, because its result is not awaited. Remove async.")
    return function


def plain_value(value: T, name: str) -> T:
    """Return the result of the function `name`. Raise `TypeError` if it is a coroutine."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{name} returned a coroutine, which is not awaited. Return the value itself.")
    return value


def call(function: Callable[..., object], *args: object) -> Any:
    """Return the result of a plain function, or of a coroutine function in a new event loop."""
    return completed(function(*args))


async def acall(function: Callable[..., object], *args: object) -> Any:
    """Do the same for asyncio. A plain function runs in Django's thread for sync code, since it may block."""
    if is_async(function):
        return await acompleted(function(*args))
    value, error = await sync_to_async(_caught)(function, args)
    if error is not None:
        raise error
    return await acompleted(value)


def completed(value: object) -> Any:
    """Return the value of an awaitable, which is awaited in a new event loop, and any other value unchanged.

    Raises `TypeError` for a generator, since its code has not run.
    """
    if type(value) in _NOT_AWAITABLE:  # an eighth of the time of what follows
        return value
    if not inspect.isawaitable(value):
        return _not_generator(value)
    try:
        return async_to_sync(acompleted)(value)
    finally:
        if inspect.iscoroutine(value):
            value.close()  # one that could not start, since a loop runs in this thread


async def acompleted(value: object) -> Any:
    """Do the same for asyncio."""
    while inspect.isawaitable(value):
        value = await value
    return _not_generator(value)


def original(error: BaseException) -> BaseException:
    """Return the error itself, or the `StopIteration` that a coroutine raised and Python replaced (PEP 479)."""
    stop = error.__cause__
    if type(error) is RuntimeError and isinstance(stop, StopIteration | StopAsyncIteration):
        return stop if " raised Stop" in str(error) else error
    return error


def _caught(function: Callable[..., T], args: tuple[object, ...]) -> tuple[T | None, Exception | None]:
    """Return the value or the error: a `StopIteration` raised in a thread would never reach the loop."""
    try:
        return function(*args), None
    except Exception as error:
        return None, error


def _not_generator(value: T) -> T:
    is_generator = isinstance(value, Generator | AsyncGenerator)  # others may have any attributes
    if is_generator and (getattr(value, "gi_frame", None) or getattr(value, "ag_frame", None)):  # None: it has ended
        raise TypeError(
            f"The function returned the generator {getattr(value, '__qualname__', '')}, whose code has not run. "
            "Iterate over it in the function, or return a list."
        )
    return value


def deferred(path: str) -> Callable[..., Any]:
    """Return a function that imports and calls the one at the dotted `path`, for parts that are rarely used."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return import_string(path)(*args, **kwargs)

    return call
