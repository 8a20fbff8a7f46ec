"""Calling the source: a function or a coroutine function, from sync and from async code."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from resty_django.events.handlers import is_async
from resty_django.events.steps import Step, Steps

from .errors import BadOption, CallbackFailed, SourceError
from .options import Options, is_number
from .results import Fresh
from .stats import Counter

Callback = Callable[..., Any]


def check_callback(callback: object) -> None:
    """Raises `BadOption`."""
    if not callable(callback):
        raise BadOption(f"callback must be a function or a coroutine function, not {callback!r}.")


def ask(
    key: str, callback: Callback, args: tuple[Any, ...], options: Options, counter: Counter
) -> Steps[tuple[Any, float]]:
    """The value of the source, and how many seconds it lives: 0 for ever, below 0 not at all.

    Raises `SourceError` where the source says that it cannot answer, and `CallbackFailed` for anything else.
    """
    began = time.perf_counter()
    try:
        value = yield Step(_call, _acall, (callback, args))
    except SourceError:
        counter.now.callback_errors += 1
        raise
    except Exception as error:
        counter.now.callback_errors += 1
        if isinstance(error, options.failures):
            raise SourceError(error) from error
        raise CallbackFailed(error) from error
    finally:
        counter.took(key, time.perf_counter() - began)
    if type(value) is not Fresh:
        return value, options.life(value)
    value, ttl = value
    return value, (ttl if is_number(ttl) else options.life(value))


def _call(callback: Callback, args: tuple[Any, ...]) -> Any:
    value = callback(*args)
    if not inspect.isawaitable(value):
        return value
    try:
        return async_to_sync(_awaited)(value)
    finally:
        if inspect.iscoroutine(value):
            value.close()  # one that could not start, since a loop runs in this thread


async def _acall(callback: Callback, args: tuple[Any, ...]) -> Any:
    """A plain function runs in the thread that Django has for sync code, since it may wait."""
    if is_async(callback):
        return await callback(*args)
    value, error = await sync_to_async(_caught)(callback, args)
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def _caught(callback: Callback, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """The value or the error: a `StopIteration` that leaves a thread would never arrive in the loop."""
    try:
        return callback(*args), None
    except Exception as error:
        return None, error


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


__all__ = ["Callback", "ask", "check_callback"]
