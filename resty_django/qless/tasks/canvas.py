"""Sequences and groups of tasks: signatures, chains, groups, chords.

    chain(fetch.s(7), resize.s(width=200), store.si("done")).delay()
    chord([count.s(1), count.s(2)], total.s()).delay()

All jobs are enqueued at the start, and each one depends on the previous ones. So a worker that dies between two steps
loses nothing; and if a step fails, the steps after it wait and continue once it has been retried and has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from ..clients.client import Client
from .message import EnqueueOptions, Message, Source, dispatcher
from .results import AsyncResult, GroupResult

if TYPE_CHECKING:
    from .base import Task

Outcome: TypeAlias = "AsyncResult[Any] | GroupResult"


@dataclass(slots=True)
class _Plan:
    """The messages so far, and the result on which the next ones depend."""

    messages: list[tuple[Task[..., Any], Message]]
    tail: Outcome | None = None

    def after(self) -> list[str]:
        if self.tail is None:
            return []
        return [self.tail.id] if isinstance(self.tail, AsyncResult) else [result.id for result in self.tail]


class Step:
    """A signature, a chain or a group. `first | second` is a chain."""

    __slots__ = ()

    def __or__(self, following: Step) -> chain:
        if not isinstance(following, Step):
            return NotImplemented
        return chain(self, following)

    def _plan(self, plan: _Plan, client: Client) -> None:
        raise NotImplementedError

    def delay(self) -> Any:
        """Enqueue all steps in one round trip, and return the result of the last one."""
        return self.apply_async()

    async def adelay(self) -> Any:
        """Do the same for asyncio."""
        return await self.aapply_async()

    def apply_async(self) -> Any:
        """Do the same as `delay`."""
        sender = dispatcher()
        plan = self._planned(sender.client)
        sender.send(plan.messages)
        return plan.tail

    async def aapply_async(self) -> Any:
        """Do the same for asyncio."""
        sender = dispatcher()
        plan = self._planned(sender.client)
        await sender.asend(plan.messages)
        return plan.tail

    def delay_on_commit(self, using: str | None = None) -> Any:
        """Enqueue all steps when the open transaction is committed. Return the result of the last one at once."""
        sender = dispatcher()
        plan = self._planned(sender.client)
        sender.send_on_commit(plan.messages, using)
        return plan.tail

    def _planned(self, client: Client) -> _Plan:
        plan = _Plan([])
        self._plan(plan, client)
        return plan


@dataclass(frozen=True, slots=True)
class Signature(Step):
    """A task with arguments and options, to enqueue later. `immutable`: ignores the previous step's result."""

    task: Task[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: EnqueueOptions = field(default_factory=EnqueueOptions)
    immutable: bool = False

    def __post_init__(self) -> None:
        if unknown := sorted(self.options.keys() - EnqueueOptions.__annotations__.keys()):
            raise TypeError(
                f"Tasks have no option {unknown[0]!r} for enqueuing. "
                f"Options are {', '.join(sorted(EnqueueOptions.__annotations__))}."
            )

    def set(self, **options: Unpack[EnqueueOptions]) -> Signature:
        """Return a copy with additional options of `apply_async`. Raises `TypeError` for an unknown one."""
        return replace(self, options={**self.options, **options})

    def _plan(self, plan: _Plan, client: Client) -> None:
        source: Source = None
        if plan.tail is not None and not self.immutable:
            silent = [
                task.path for task, message in plan.messages if message.jid in plan.after() and not task.keep_result
            ]
            if silent:
                raise TypeError(f"{silent[0]} keeps no result to pass to {self.task.path}. Use si() instead of s().")
            source = plan.tail.id if isinstance(plan.tail, AsyncResult) else plan.after()
        options = self.options.copy()
        options["depends"] = [*plan.after(), *options.get("depends", ())]
        message = self.task.message(self.args, self.kwargs, client=client, source=source, **options)
        plan.messages.append((self.task, message))
        plan.tail = AsyncResult(message.jid, client=client, parent=plan.tail)


class chain(Step):
    """Steps in sequence. Each step gets the previous step's result as its first argument, or a list of results after a
    group, unless it was created by `si`."""

    __slots__ = ("flat",)
    flat: list[Step]

    def __init__(self, *steps: Step) -> None:
        flat: list[Step] = []
        for step in steps:
            flat += step.flat if isinstance(step, chain) else [step]
        if not flat or not all(isinstance(step, Step) for step in flat):
            raise TypeError("chain() needs steps. Pass signatures such as task.s(1), groups or chains.")
        self.flat = flat

    def __repr__(self) -> str:
        return f"chain{tuple(self.flat)!r}"

    def _plan(self, plan: _Plan, client: Client) -> None:
        for step in self.flat:
            step._plan(plan, client)


class group(Step):
    """Steps in parallel: signatures, or chains that end with one."""

    __slots__ = ("flat",)
    flat: list[Step]

    def __init__(self, *steps: Step | Iterable[Step]) -> None:
        members = [*steps[0]] if len(steps) == 1 and not isinstance(steps[0], Step) else [*steps]
        flat: list[Step] = []
        for step in members:
            flat += step.flat if isinstance(step, group) else [step]  # type: ignore[list-item]
        if not flat or not all(isinstance(step, Step) for step in flat):
            raise TypeError("group() needs steps. Pass signatures such as task.s(1), chains, or one list of them.")
        self.flat = flat

    def __repr__(self) -> str:
        return f"group{tuple(self.flat)!r}"

    def _plan(self, plan: _Plan, client: Client) -> None:
        before, tails = plan.tail, []
        for step in self.flat:
            plan.tail = before
            step._plan(plan, client)
            if not isinstance(plan.tail, AsyncResult):
                raise TypeError("A chain in a group must end with a task, not with a group. Add a task at its end.")
            tails.append(plan.tail)
        plan.tail = GroupResult(tails)


def chord(header: group | Iterable[Step], body: Step) -> chain:
    """Return a chain of a group and a task that gets the list of the group's results."""
    return chain(header if isinstance(header, group) else group(header), body)
