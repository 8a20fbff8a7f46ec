"""Return values of a site's functions: awaitables are awaited; generators are refused, since their code has not run.

A function may return a coroutine without being a coroutine function: a decorator that is not async wraps it.
"""

from __future__ import annotations

import inspect
from typing import Any

from asgiref.sync import async_to_sync


def completed(value: Any) -> Any:
    """Return what a function returned, in sync code; an awaitable is awaited in a new event loop.

    Raises `TypeError` for a generator.
    """
    return async_to_sync(acompleted)(value) if inspect.isawaitable(value) else _refuse_generator(value)


async def acompleted(value: Any) -> Any:
    """Do the same for asyncio."""
    while inspect.isawaitable(value):
        value = await value
    return _refuse_generator(value)


def _refuse_generator(value: Any) -> Any:
    if getattr(value, "gi_frame", None) or getattr(value, "ag_frame", None):  # None: it has run to its end
        raise TypeError(
            f"The function returned the generator {value.__qualname__}, whose code has not run. "
            "Iterate over it in the function, or return a list."
        )
    return value
