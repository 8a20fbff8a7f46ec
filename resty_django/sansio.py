"""One course of action for sync and async code: a generator of steps, and the runners that take them. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

R = TypeVar("R")


class Step(NamedTuple):
    """A call that may have to wait. The generator that yields it gets its result, or its exception."""

    call: Callable[..., Any]
    acall: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...] = ()


Steps: TypeAlias = Generator[Step, Any, R]


def run(steps: Generator[Any, Any, R], perform: Callable[[Any], Any] | None = None) -> R:
    """Take all steps and return what the generator returns.

    `perform` takes one step and returns its result, for generators that yield something other than `Step`.
    """
    try:
        step = next(steps)
        while True:
            try:
                result = step.call(*step.args) if perform is None else perform(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(steps: Generator[Any, Any, R], perform: Callable[[Any], Awaitable[Any]] | None = None) -> R:
    """Do the same for asyncio."""
    try:
        step = next(steps)
        while True:
            try:
                result = await (step.acall(*step.args) if perform is None else perform(step))
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
