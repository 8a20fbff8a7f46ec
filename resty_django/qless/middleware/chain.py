"""Middleware: generator functions around a job, with one chain for sync jobs and one for async jobs.

    def timed(job):
        started_at = time.monotonic()
        yield                       # the job runs here; its exceptions are raised here
        log.info("%s took %.1f s", job.jid, time.monotonic() - started_at)

A middleware may let an exception pass, raise another one, or swallow it, which completes the job. For an async job it
may also be an async generator function; if it is not, it must not block.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from types import GeneratorType
from typing import TypeAlias

from resty_django.callables import original

from .job import WorkerJob

Around: TypeAlias = Generator[None, None, object] | AsyncGenerator[None, None]
Middleware: TypeAlias = Callable[[WorkerJob], Around]


class MiddlewareError(TypeError):
    """An object listed as middleware is not middleware, or does not fit the job."""


def run(middleware: Sequence[Middleware], job: WorkerJob, function: Callable[[WorkerJob], object]) -> object:
    """Return the value of `function(job)`, or None if a middleware swallowed its exception.

    Raises the exception that leaves the outermost middleware.
    """
    entered: list[Generator[None, None, object]] = []
    result: object = None
    error: BaseException | None = None
    try:
        for enter in middleware:
            around = enter(job)
            if type(around) is not GeneratorType and not isinstance(around, Generator):  # the first look is fast
                raise _misfit(enter, around)
            if next(around, entered) is entered:
                raise _without_yield(enter)
            entered.append(around)
        result = function(job)
    except BaseException as raised:
        error = original(raised)
    while entered:
        around = entered.pop()
        try:
            if error is None:
                next(around)
            else:
                around.throw(error)
        except StopIteration:
            error = None
        except BaseException as raised:
            error = original(raised)
        else:
            around.close()
            error = _two_yields(around)
    if error is not None:
        try:
            raise error
        finally:
            del error  # else the exception would hold its own frame
    return result


async def arun(
    middleware: Sequence[Middleware], job: WorkerJob, function: Callable[[WorkerJob], Awaitable[object]]
) -> object:
    """Do the same as `run` for a coroutine function."""
    entered: list[Around] = []
    result: object = None
    error: BaseException | None = None
    try:
        for enter in middleware:
            around = enter(job)
            if isinstance(around, AsyncGenerator):
                if await anext(around, entered) is entered:
                    raise _without_yield(enter)
            elif isinstance(around, Generator):
                if next(around, entered) is entered:
                    raise _without_yield(enter)
            else:
                raise _misfit(enter, around)
            entered.append(around)
        result = await function(job)
    except BaseException as raised:
        error = original(raised)
    while entered:
        around = entered.pop()
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
            error = original(raised)
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


def _misfit(middleware: Middleware, around: object) -> MiddlewareError:
    name = getattr(middleware, "__qualname__", repr(middleware))
    if isinstance(around, AsyncGenerator):
        return MiddlewareError(f"The middleware {name} is async, but the job is not. Use a plain generator function.")
    return MiddlewareError(f"The middleware {name} is not a generator function. Add a yield.")


def _without_yield(middleware: Middleware) -> MiddlewareError:
    return MiddlewareError(f"The middleware {getattr(middleware, '__qualname__', repr(middleware))} did not yield.")


def _two_yields(around: Around) -> MiddlewareError:
    return MiddlewareError(f"The middleware {getattr(around, '__qualname__', around)} yields more than once.")
