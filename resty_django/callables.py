"""Checks of functions that a site passes in: whether calling them runs them, and whether their results are awaited."""

from __future__ import annotations

import functools
import inspect
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction

T = TypeVar("T")


def is_async(function: Any) -> bool:
    """Return whether a call returns a coroutine; partials and objects with `__call__` are resolved."""
    while isinstance(function, functools.partial):
        function = function.func
    return iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def is_generator_function(function: Any) -> bool:
    """Return whether calling it returns a generator, also an async one, and runs nothing."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def plain_function(function: T, name: str) -> T:
    """Return `function`, which may also be something else. Raise `TypeError` if a call returns a coroutine.

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
