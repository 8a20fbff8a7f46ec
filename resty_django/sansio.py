"""Shared logic for sync and async code: generators of steps, and the runners that perform the steps. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

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
