"""Shared logic for sync and async code: generators of steps, and the runners that perform the steps. Pure."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Step(NamedTuple):
    """A call that may block. The generator that yields it receives its result or its exception."""

    call: Callable[..., Any]
    acall: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...] = ()


Steps: TypeAlias = Generator[Step, Any, R]


def run(steps: Generator[Any, Any, R], perform: Callable[[Any], Any] | None = None) -> R:
    """Perform all steps and return the generator's return value.

    `perform` takes a step and returns its result; pass it for generators that yield something other than `Step`.
    """
    try:
        step = next(steps)
        while True:
            try:
                reply = step.call(*step.args) if perform is None else perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        result: R = end.value
        return result


async def arun(steps: Generator[Any, Any, R], perform: Callable[[Any], Awaitable[Any]] | None = None) -> R:
    """Do the same for asyncio."""
    try:
        step = next(steps)
        while True:
            try:
                reply = await (step.acall(*step.args) if perform is None else perform(step))
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as end:
        result: R = end.value
        return result


def twins(
    steps: Callable[P, Steps[R]], perform: Callable[[Any, Steps[R]], Awaitable[R]] | None = None
) -> tuple[Callable[P, R], Callable[P, Coroutine[Any, Any, R]]]:
    """Return the call for sync code that performs the steps which a function returns, and its twin for asyncio.

        get_many, aget_many = twins(_get_many)

    `perform`: awaits the steps; it is called with the object of the method, and the steps.
    """
    name = steps.__name__.lstrip("_")

    @functools.wraps(steps)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return run(steps(*args, **kwargs))

    @functools.wraps(steps)
    async def acall(*args: P.args, **kwargs: P.kwargs) -> R:
        generator = steps(*args, **kwargs)
        return await (arun(generator) if perform is None else perform(args[0], generator))

    call.__name__, acall.__name__, acall.__doc__ = name, f"a{name}", f"Do the same as `{name}`."
    return call, acall
