"""One course of action for sync and async code: a generator of steps, each with a twin for asyncio. Pure."""

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


def run(steps: Steps[R]) -> R:
    """Take all steps and return what the generator returns."""
    try:
        step = next(steps)
        while True:
            try:
                result = step.call(*step.args)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(steps: Steps[R]) -> R:
    """The same for asyncio."""
    try:
        step = next(steps)
        while True:
            try:
                result = await step.acall(*step.args)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


__all__ = ["Step", "Steps", "arun", "run"]
