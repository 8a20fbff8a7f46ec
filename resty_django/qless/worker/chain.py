"""Middleware: generator functions around a job, as one chain for sync and one for async jobs.

    def timed(job):
        began = time.monotonic()
        yield                       # the job runs here; what it raises is raised here
        log.info("%s took %.1f s", job.jid, time.monotonic() - began)

A middleware may let an exception pass, raise another, or swallow it: then the job counts as done. For an async job it
may be an async generator function as well; one that is not must not block.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias

Around: TypeAlias = Generator[None, None, Any] | AsyncGenerator[None, None]
Middleware: TypeAlias = Callable[[Any], Around]


class MiddlewareError(TypeError):
    """What is listed as a middleware is none, or does not fit the job."""


def run(middleware: Sequence[Middleware], job: Any, function: Callable[[Any], Any]) -> Any:
    """What `function(job)` returns; None where a middleware swallowed its exception.

    Raises what comes out of the outermost middleware.
    """
    begun: list[Generator[None, None, Any]] = []
    result: Any = None
    error: BaseException | None = None
    try:
        for each in middleware:
            around = each(job)
            if not isinstance(around, Generator):
                raise _misfit(each, around)
            if next(around, begun) is begun:
                raise _without_yield(each)
            begun.append(around)
        result = function(job)
    except BaseException as raised:
        error = raised
    while begun:
        around = begun.pop()
        try:
            if error is None:
                next(around)
            else:
                around.throw(error)
        except StopIteration:
            error = None
        except BaseException as raised:
            error = raised
        else:
            around.close()
            error = _two_yields(around)
    if error is not None:
        try:
            raise error
        finally:
            del error  # else the exception would hold its own frame
    return result


async def arun(middleware: Sequence[Middleware], job: Any, function: Callable[[Any], Awaitable[Any]]) -> Any:
    """As `run`, for a coroutine function."""
    begun: list[Around] = []
    result: Any = None
    error: BaseException | None = None
    try:
        for each in middleware:
            around = each(job)
            if isinstance(around, AsyncGenerator):
                if await anext(around, begun) is begun:
                    raise _without_yield(each)
            elif isinstance(around, Generator):
                if next(around, begun) is begun:
                    raise _without_yield(each)
            else:
                raise _misfit(each, around)
            begun.append(around)
        result = await function(job)
    except BaseException as raised:
        error = raised
    while begun:
        around = begun.pop()
        try:
            if isinstance(around, AsyncGenerator):
                await (anext(around) if error is None else around.athrow(error))
            elif error is None:
                next(around)
            else:
                around.throw(error)
        except (StopIteration, StopAsyncIteration):
            error = None
        except BaseException as raised:
            error = raised
        else:
            if isinstance(around, AsyncGenerator):
                await around.aclose()
            else:
                around.close()
            error = _two_yields(around)
    if error is not None:
        try:
            raise error
        finally:
            del error
    return result


def _misfit(middleware: Any, around: object) -> MiddlewareError:
    name = getattr(middleware, "__qualname__", repr(middleware))
    if isinstance(around, AsyncGenerator):
        return MiddlewareError(f"The middleware {name} is an async generator function, and the job is not async.")
    return MiddlewareError(f"The middleware {name} is not a generator function: it has no yield.")


def _without_yield(middleware: Any) -> MiddlewareError:
    return MiddlewareError(f"The middleware {getattr(middleware, '__qualname__', repr(middleware))} did not yield.")


def _two_yields(around: Around) -> MiddlewareError:
    return MiddlewareError(f"The middleware {getattr(around, '__qualname__', around)} yields more than once.")


__all__ = ["Around", "Middleware", "MiddlewareError", "arun", "run"]
