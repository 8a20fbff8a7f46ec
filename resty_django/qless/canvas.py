"""Tasks that come after each other and beside each other: signatures, chains, groups.

    chain(fetch.s(7), resize.s(width=200), store.si("done")).delay()
    chord([count.s(1), count.s(2)], total.s()).delay()

Each is one job from the beginning, which depends on those before it. So nothing is lost where a worker dies in between;
and where one fails, those behind it wait, and go on when it has been run again and has ended well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from . import sending
from .clients import Client
from .message import Message, Source
from .results import AsyncResult, GroupResult

if TYPE_CHECKING:
    from .task import Task

Outcome: TypeAlias = "AsyncResult[Any] | GroupResult"


@dataclass(slots=True)
class _Plan:
    """The messages so far, and what the next ones depend on."""

    messages: list[tuple[Task[..., Any], Message]]
    tail: Outcome | None = None

    def after(self) -> list[str]:
        if self.tail is None:
            return []
        return [self.tail.id] if isinstance(self.tail, AsyncResult) else [each.id for each in self.tail]


class Step:
    """What can be put: a signature, a chain, a group. `one | other` is a chain."""

    __slots__ = ()

    def __or__(self, other: Step) -> chain:
        if not isinstance(other, Step):
            return NotImplemented
        return chain(self, other)

    def _plan(self, plan: _Plan, client: Client) -> None:
        raise NotImplementedError

    def delay(self) -> Any:
        """Put all of it, in one round trip; gives the outcome of the last step."""
        return self.apply_async()

    async def adelay(self) -> Any:
        """The same for asyncio."""
        return await self.aapply_async()

    def apply_async(self) -> Any:
        """As `delay`."""
        client = sending.client()
        plan = self._planned(client)
        sending.send(plan.messages, client)
        return plan.tail

    async def aapply_async(self) -> Any:
        """The same for asyncio."""
        client = sending.client()
        plan = self._planned(client)
        await sending.asend(plan.messages, client)
        return plan.tail

    def delay_on_commit(self, using: str | None = None) -> Any:
        """As `delay`, when the transaction under way is committed; the outcome is given at once."""
        client = sending.client()
        plan = self._planned(client)
        sending.send_on_commit(plan.messages, client, using)
        return plan.tail

    def _planned(self, client: Client) -> _Plan:
        plan = _Plan([])
        self._plan(plan, client)
        return plan


@dataclass(frozen=True, slots=True)
class Signature(Step):
    """A task with arguments and options, to be put later. `immutable`: it takes no result of the step before."""

    task: Task[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = None  # type: ignore[assignment]
    options: Mapping[str, Any] = None  # type: ignore[assignment]
    immutable: bool = False

    def set(self, **options: Any) -> Signature:
        """The same with these options of `apply_async` too."""
        return replace(self, options={**(self.options or {}), **options})

    def _plan(self, plan: _Plan, client: Client) -> None:
        source: Source = None
        if plan.tail is not None and not self.immutable:
            silent = [
                task.path for task, message in plan.messages if message.jid in plan.after() and not task.keep_result
            ]
            if silent:
                raise TypeError(
                    f"{silent[0]} keeps no result, which {self.task.path} would get. Use si() in place of s()."
                )
            source = plan.tail.id if isinstance(plan.tail, AsyncResult) else plan.after()
        options = dict(self.options or {})
        depends = [*plan.after(), *(str(each) for each in options.pop("depends", ()))]
        message = self.task.message(
            self.args, self.kwargs or {}, client=client, depends=depends, source=source, **options
        )
        plan.messages.append((self.task, message))
        plan.tail = AsyncResult(message.jid, client=client, parent=plan.tail)


class chain(Step):
    """Steps one after the other. Each gets the result of the one before as its first argument, of a group the list of
    its results; but not where it was made by `si`."""

    __slots__ = ("flat",)
    flat: list[Step]

    def __init__(self, *steps: Step) -> None:
        flat: list[Step] = []
        for step in steps:
            flat += step.flat if isinstance(step, chain) else [step]
        if not flat or not all(isinstance(step, Step) for step in flat):
            raise TypeError("chain() takes signatures, such as task.s(1), groups and chains.")
        self.flat = flat

    def __repr__(self) -> str:
        return f"chain{tuple(self.flat)!r}"

    def _plan(self, plan: _Plan, client: Client) -> None:
        for step in self.flat:
            step._plan(plan, client)


class group(Step):
    """Steps beside each other: signatures, or chains that end with one."""

    __slots__ = ("flat",)
    flat: list[Step]

    def __init__(self, *steps: Step | Iterable[Step]) -> None:
        given = [*steps[0]] if len(steps) == 1 and not isinstance(steps[0], Step) else [*steps]
        flat: list[Step] = []
        for step in given:
            flat += step.flat if isinstance(step, group) else [step]  # type: ignore[list-item]
        if not flat or not all(isinstance(step, Step) for step in flat):
            raise TypeError("group() takes signatures, such as task.s(1), and chains; or a list of them.")
        self.flat = flat

    def __repr__(self) -> str:
        return f"group{tuple(self.flat)!r}"

    def _plan(self, plan: _Plan, client: Client) -> None:
        before, tails = plan.tail, []
        for step in self.flat:
            plan.tail = before
            step._plan(plan, client)
            if not isinstance(plan.tail, AsyncResult):
                raise TypeError("A chain in a group ends with a task. Put a task behind the group at its end.")
            tails.append(plan.tail)
        plan.tail = GroupResult(tails)


def chord(header: group | Iterable[Step], body: Step) -> chain:
    """A group, and the task that gets the list of its results."""
    return chain(header if isinstance(header, group) else group(header), body)


__all__ = ["Signature", "Step", "chain", "chord", "group"]
