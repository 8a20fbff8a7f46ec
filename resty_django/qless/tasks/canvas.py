"""Sequences and groups of tasks: signatures, chains, groups, chords.

    chain(fetch.s(7), resize.s(width=200), store.si("done")).delay()
    chord([count.s(1), count.s(2)], total.s()).delay()

All jobs are enqueued at the start, and each one depends on the previous ones, so a worker that dies between two steps
loses nothing. If a step fails, the steps after it fail, too, unless its option `if_failed` or their option
`allow_failure` says otherwise; once it has been retried, they wait for it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack, cast

from msgspec import structs

from ..clients.client import Client
from ..job_classes import Runnable
from .consequences import ANY, Consequences, PlannedCallback, PlannedJob, checked_policy
from .group_results import GroupResult
from .message import ArgumentSource, PlannedGroup, dispatcher
from .options import Callbacks, CallReactions, EnqueueKeywords, EnqueueOptions, Reactions, StepKeywords, check_keywords
from .results import AsyncResult

if TYPE_CHECKING:
    from .base import Task

StepResult: TypeAlias = "AsyncResult[Any] | GroupResult"

OUTCOME: Final = ArgumentSource("pass", "outcome")
"""The first argument of most callbacks."""


@dataclass(slots=True)
class _Plan:
    """The jobs and groups so far, and the result on which the next jobs depend.

    `after`: what they wait for: the tail, and what comes before an empty group. `tail_policy`: what they do if the tail
    fails; None: they fail. `silent`: a task of the tail that keeps no result.
    """

    jobs: list[PlannedJob] = field(default_factory=list)
    groups: list[PlannedGroup] = field(default_factory=list)
    tail: StepResult | None = None
    after: tuple[StepResult, ...] = ()
    tail_policy: str | None = None
    silent: Task[..., Any] | None = None


class CanvasStep:
    """A signature, a chain or a group. `first | second` is a chain."""

    __slots__ = ()

    def __or__(self, following: CanvasStep) -> chain:
        if not isinstance(following, CanvasStep):
            return NotImplemented
        return chain(self, following)

    def _plan(self, plan: _Plan, client: Client) -> None:
        raise NotImplementedError

    def set(self, **options: Any) -> CanvasStep:
        """Return a copy with additional options. Raises `TypeError` for an unknown one."""
        raise NotImplementedError

    def delay(self) -> Any:
        """Enqueue all steps, and return the result of the last one."""
        return self.apply_async()

    async def adelay(self) -> Any:
        """Do the same for asyncio."""
        return await self.aapply_async()

    def apply_async(self, *, using: str | None = None, **options: Any) -> Any:
        """Do the same as `delay`, with additional options as in `set`. `using`: see `Task.apply_async`."""
        sender = dispatcher()
        plan = self._planned(sender.client, options)
        sender.send(plan.jobs, plan.groups, using)
        return plan.tail

    async def aapply_async(self, *, using: str | None = None, **options: Any) -> Any:
        """Do the same for asyncio."""
        sender = dispatcher()
        plan = self._planned(sender.client, options)
        await sender.asend(plan.jobs, plan.groups, using)
        return plan.tail

    def delay_on_commit(self, using: str | None = None, robust: bool = False) -> Any:
        """Enqueue all steps when the open transaction is committed. Return the result of the last one at once.

        `using`, `robust`: see `Task.apply_async_on_commit`.
        """
        sender = dispatcher()
        plan = self._planned(sender.client, {})
        sender.send_on_commit(plan.jobs, using, robust, plan.groups)
        return plan.tail

    def _planned(self, client: Client, options: Mapping[str, Any]) -> _Plan:
        plan = _Plan()
        step = self.set(**options) if options else self
        step._plan(plan, client)
        return plan


@dataclass(frozen=True, slots=True)
class Signature(CanvasStep):
    """A task with arguments and options, to enqueue later. `immutable`: ignores the previous step's result."""

    task: Task[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: EnqueueKeywords = field(default_factory=EnqueueKeywords)
    immutable: bool = False

    def __post_init__(self) -> None:
        if self.options:
            check_keywords("A signature", self.options, EnqueueKeywords.__annotations__)

    def set(self, **options: Unpack[EnqueueKeywords]) -> Signature:  # type: ignore[override]
        """Return a copy with additional options of `apply_async`. Raises `TypeError` for an unknown one."""
        return replace(self, options={**self.options, **options})

    def _plan(self, plan: _Plan, client: Client) -> None:
        options = EnqueueOptions.of(self.options)
        source = None
        if plan.tail is not None:
            if not self.immutable:
                if plan.silent is not None:
                    raise TypeError(
                        f"{plan.silent.path} keeps no result to pass to {self.task.path}. Use si() instead of s()."
                    )
                source = _source_of(plan.tail, options.allow_failure or plan.tail_policy == "release")
            options = structs.replace(options, depends=[*(result.id for result in plan.after), *options.depends])
        message = self.task.message(self.args, self.kwargs, options, client=client, source=source)
        if plan.tail is not None and plan.tail_policy is not None and not options.allow_failure:
            message = message.with_consequences(policies={ANY: "fail", plan.tail.id: plan.tail_policy})
        plan.jobs.append(PlannedJob(self.task, message))
        plan.tail = AsyncResult(message.jid, client=client, parent=plan.tail)
        plan.after = (plan.tail,)
        plan.tail_policy = options.if_failed or self.task.options.if_failed
        plan.silent = None if self.task.keep_result else self.task

    def callback(self, option: str, source: ArgumentSource, client: Client) -> PlannedCallback:
        """Return what the end of a task or group enqueues. `source`: the first argument. Raises what `delay` raises."""
        names = EnqueueKeywords.__annotations__.keys() - {"eta", "expires", "depends", "allow_failure", "if_failed"}
        check_keywords(f"A task in {option}=", self.options, names)
        options = EnqueueOptions.of(self.options)
        delay = options.countdown or 0.0
        # with an ID here, because a callback is never unique
        options = structs.replace(options, countdown=None, task_id=options.task_id or client.generate_jid())
        source_used = None if self.immutable else source
        message = self.task.message(self.args, self.kwargs, options, client=client, source=source_used)
        return PlannedCallback(self.task, message, delay)


class chain(CanvasStep):
    """Steps in sequence. Each step gets the previous step's result as its first argument, or a list of results after a
    group, unless it was created by `si`."""

    __slots__ = ("flat",)
    flat: list[CanvasStep]

    def __init__(self, *steps: CanvasStep) -> None:
        flat: list[CanvasStep] = []
        for step in steps:
            flat += step.flat if isinstance(step, chain) else [step]
        if not flat or not all(isinstance(step, CanvasStep) for step in flat):
            raise TypeError("chain() needs steps. Pass signatures such as task.s(1), groups or chains.")
        self.flat = flat

    def __repr__(self) -> str:
        return f"chain{tuple(self.flat)!r}"

    def set(self, **options: Unpack[StepKeywords]) -> chain:  # type: ignore[override]
        """Return a copy with additional options of the last step. Raises `TypeError` for an unknown one."""
        check_keywords("A chain", options, StepKeywords.__annotations__)
        return chain(*self.flat[:-1], self.flat[-1].set(**options))

    def _plan(self, plan: _Plan, client: Client) -> None:
        for step in self.flat:
            step._plan(plan, client)


class group(CanvasStep):
    """Steps in parallel: signatures, or chains that end with one.

    - `name`: a name for the admin and for callbacks. None: the name of the members' task, if it is the same for all.
    - `options`: see `CallReactions`.
    """

    __slots__ = ("flat", "name", "options")
    flat: list[CanvasStep]
    name: str | None
    options: StepKeywords

    def __init__(
        self, *steps: CanvasStep | Iterable[CanvasStep], name: str | None = None, **options: Unpack[StepKeywords]
    ) -> None:
        check_keywords("A group", options, {**StepKeywords.__annotations__, "name": str})
        members = [*steps[0]] if len(steps) == 1 and not isinstance(steps[0], CanvasStep) else [*steps]
        flat: list[CanvasStep] = []
        for step in members:
            if isinstance(step, group) and (step.name is not None or step.options):
                raise TypeError("A group with a name or options cannot be a member of a group. Set them on the outer.")
            flat += step.flat if isinstance(step, group) else [step]  # type: ignore[list-item]
        if not all(isinstance(step, CanvasStep) for step in flat):
            raise TypeError("group() needs steps. Pass signatures such as task.s(1), chains, or one list of them.")
        if options.get("if_failed") is not None:
            checked_policy(options["if_failed"])
        self.flat = flat
        self.name = name
        self.options = options

    def __repr__(self) -> str:
        return f"group{tuple(self.flat)!r}"

    def set(self, **options: Any) -> group:
        """Return a copy with additional options, among them `name`. Raises `TypeError` for an unknown one."""
        return group(self.flat, **{"name": self.name, **self.options, **options})

    def _plan(self, plan: _Plan, client: Client) -> None:
        jid, before, before_policy, before_silent = client.generate_jid(), plan.tail, plan.tail_policy, plan.silent
        after = plan.after
        tails: list[AsyncResult[Any]] = []
        names: set[str] = set()
        silent = None
        at = len(plan.groups)
        for step in self.flat:
            plan.tail, plan.after, plan.tail_policy, plan.silent = before, after, before_policy, before_silent
            step._plan(plan, client)
            if not isinstance(plan.tail, AsyncResult):
                raise TypeError("A chain in a group must end with a task, not with a group. Add a task at its end.")
            last = step.flat[-1] if isinstance(step, chain) else step
            if isinstance(last, Signature) and last.options.get("if_failed") is not None:
                raise TypeError(
                    f"if_failed= of {last.task.path} has no effect, because it is a member of a group. "
                    "Set it on the group: group(..., if_failed=...)."
                )
            task, message = plan.jobs[-1]
            plan.jobs[-1] = PlannedJob(task, message.with_consequences(group=jid))
            tails.append(plan.tail)
            names.add(task.name)
            silent = silent or plan.silent
        name = (names.pop() if len(names) == 1 else "") if self.name is None else self.name
        callbacks = callbacks_of(CallReactions(**self.options), client, ArgumentSource("from_group", jid), silent)
        plan.groups.insert(at, PlannedGroup(jid, name, callbacks))
        plan.tail = GroupResult(jid, client=client, results=tails, parent=before)
        plan.after = (plan.tail,) if tails else (*after, plan.tail)
        plan.tail_policy, plan.silent = self.options.get("if_failed"), silent


def chord(header: group | Iterable[CanvasStep], body: CanvasStep) -> chain:
    """Return a chain of a group and a task that gets the list of the group's results."""
    return chain(header if isinstance(header, group) else group(header), body)


def signatures_of(option: str, value: Callbacks) -> list[Signature]:
    """Return the signatures of callbacks. Raises `TypeError` for anything but tasks and signatures."""
    if value is None:
        return []
    is_list = isinstance(value, Iterable) and not isinstance(value, str | CanvasStep | Runnable)
    signatures = []
    for item in cast("Iterable[Any]", value) if is_list else [value]:
        signature = item.s() if isinstance(item, Runnable) and hasattr(item, "s") else item
        if not isinstance(signature, Signature):
            raise TypeError(
                f"{option}= takes tasks and signatures such as task.s(1), or a list of them, not {item!r:.80}."
            )
        signatures.append(signature)
    return signatures


def check_callbacks(reactions: Reactions) -> None:
    """Raise `TypeError` for callbacks of a task that are neither tasks nor signatures."""
    for option in ("on_success", "on_failure", "on_complete"):
        signatures_of(option, getattr(reactions, option))


def consequences_of(task: Task[..., Any], options: EnqueueOptions, client: Client) -> Consequences | None:
    """Return the consequences of the end of a job. None if there are none."""
    reactions = options.over(task.options)
    source = ArgumentSource("pass", "result")
    callbacks = callbacks_of(reactions, client, source, None if task.keep_result else task)
    if options.depends:
        return replace(callbacks, policies={ANY: "release" if options.allow_failure else "fail"})
    return callbacks if callbacks.success or callbacks.failure or callbacks.complete else None


def callbacks_of(
    reactions: CallReactions,
    client: Client,
    result: ArgumentSource,
    silent: Task[..., Any] | None = None,
    outcome: ArgumentSource = OUTCOME,
) -> Consequences:
    """Return the callbacks. `result`, `outcome`: the sources of the first argument of `link`, and of the others.
    `silent`: a task that keeps no result."""

    def planned(option: str, callbacks: Callbacks, source: ArgumentSource) -> list[PlannedCallback]:
        return [signature.callback(option, source, client) for signature in signatures_of(option, callbacks)]

    if silent is not None and any(not signature.immutable for signature in signatures_of("link", reactions.link)):
        raise TypeError(f"{silent.path} keeps no result to pass to link=. Use si() instead of s().")
    on_success = planned("on_success", reactions.on_success, outcome)
    link = planned("link", reactions.link, result)
    on_failure = planned("on_failure", reactions.on_failure, outcome)
    link_error = planned("link_error", reactions.link_error, outcome)
    on_complete = planned("on_complete", reactions.on_complete, outcome)
    return Consequences((*on_success, *link), (*on_failure, *link_error), tuple(on_complete))


def _source_of(tail: StepResult, allow_failure: bool) -> ArgumentSource:
    return ArgumentSource("from_group" if isinstance(tail, GroupResult) else "from", tail.id, allow_failure)
