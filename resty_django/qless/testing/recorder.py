"""Recording of tasks: nothing is enqueued, and no server is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, Unpack

import msgspec
from django.db import transaction

from ..clients.serialization import encode
from ..errors import InvalidArgument
from ..tasks.base import Task
from ..tasks.consequences import Consequences, PlannedCallback
from ..tasks.message import USING_NEEDS, PlannedGroup, PlannedJobs, TaskDispatcher, TaskMessage, covers, use_dispatcher


@dataclass(frozen=True, slots=True)
class EnqueuedTask:
    """A task that was enqueued while a recorder was active.

    - `id`: the ID of its result. `queue`, `priority`, `tags`: as a worker would see them.
    - `args`, `kwargs`: as a worker would receive them, after JSON.
    - `eta`: the time from which it may run; None: at once.
    - `depends`: the IDs of tasks that have to end before.
    - `group`: the ID of its group; None: it is not in a group.
    - `on_success`, `on_failure`, `on_complete`: the tasks that its end would enqueue, with their arguments after the
      `TaskOutcome`.
    """

    task: Task[..., Any]
    id: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    priority: float
    tags: tuple[str, ...]
    eta: datetime | None
    depends: tuple[str, ...]
    group: str | None = None
    on_success: tuple[EnqueuedTask, ...] = ()
    on_failure: tuple[EnqueuedTask, ...] = ()
    on_complete: tuple[EnqueuedTask, ...] = ()

    @classmethod
    def of(cls, task: Task[..., Any], message: TaskMessage) -> EnqueuedTask:
        """Return the record of a message."""
        data, options = msgspec.json.decode(message.data), message.options
        consequences = message.consequences or Consequences()
        return cls(
            task=task,
            id=message.jid,
            args=data["args"],
            kwargs=data["kwargs"],
            queue=message.queue,
            priority=options.priority or 0,
            tags=tuple(options.tags),
            eta=None if message.when is None else datetime.fromtimestamp(message.when, UTC),
            depends=tuple(options.depends),
            group=consequences.group or None,
            on_success=_recorded(consequences.success),
            on_failure=_recorded(consequences.failure),
            on_complete=_recorded(consequences.complete),
        )

    def __str__(self) -> str:
        return f"{_call_text(self.task, self.args, self.kwargs)} in {self.queue!r}"

    def was_called_with(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Return whether the arguments are equal: by position or by name, with defaults, and after JSON."""
        expected = msgspec.json.decode(encode([[*args], dict(kwargs)]))
        if expected == [self.args, self.kwargs]:
            return True
        bind = self.task.parameters.signature.bind
        try:
            bound = [bind(*expected[0], **expected[1]), bind(*self.args, **self.kwargs)]
        except TypeError:  # a step of a chain, whose first argument is the result of the step before
            return False
        for arguments in bound:
            arguments.apply_defaults()
        return bound[0] == bound[1]


@dataclass(frozen=True, slots=True)
class EnqueuedGroup:
    """A group that was enqueued while a recorder was active: `members`, and the tasks that its end would enqueue."""

    id: str
    name: str
    members: tuple[EnqueuedTask, ...]
    on_success: tuple[EnqueuedTask, ...]
    on_failure: tuple[EnqueuedTask, ...]
    on_complete: tuple[EnqueuedTask, ...]

    @classmethod
    def of(cls, group: PlannedGroup, tasks: Sequence[EnqueuedTask]) -> EnqueuedGroup:
        """Return the record of a group. `tasks`: all tasks that were enqueued with it."""
        members = tuple(task for task in tasks if task.group == group.id)
        return cls(
            id=group.id,
            name=group.name,
            members=members,
            on_success=_recorded(group.callbacks.success),
            on_failure=_recorded(group.callbacks.failure),
            on_complete=_recorded(group.callbacks.complete),
        )


def _recorded(callbacks: Iterable[PlannedCallback]) -> tuple[EnqueuedTask, ...]:
    return tuple(EnqueuedTask.of(callback.task, callback.message) for callback in callbacks)


class MatchOptions(TypedDict, total=False):
    """Properties of the recorded task, besides its arguments; None: any value.

    - `queue`, `priority`, `eta`: equal values.
    - `tags`: tags that it has, among others.
    """

    queue: str | None
    priority: float | None
    tags: Sequence[str] | None
    eta: datetime | None


class Recorder:
    """The tasks and groups that were enqueued, in their order."""

    def __init__(self) -> None:
        self.tasks: list[EnqueuedTask] = []
        self.groups: list[EnqueuedGroup] = []

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[EnqueuedTask]:
        return iter(self.tasks)

    def clear(self) -> None:
        """Forget the tasks and groups so far."""
        self.tasks.clear()
        self.groups.clear()

    def add(self, planned: PlannedJobs, groups: Sequence[PlannedGroup]) -> None:
        """Record tasks and groups."""
        tasks = [EnqueuedTask.of(task, message) for task, message in planned]
        self.tasks += tasks
        self.groups += [EnqueuedGroup.of(group, tasks) for group in groups]

    def matching(
        self,
        task: Task[..., Any] | None = None,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        queue: str | None = None,
        priority: float | None = None,
        tags: Sequence[str] | None = None,
        eta: datetime | None = None,
    ) -> list[EnqueuedTask]:
        """Return the recorded tasks that match all arguments that are not None.

        With `args` or `kwargs`, all arguments of the call have to be equal, whether by position or by name.
        """
        with_arguments = args is not None or kwargs is not None
        return [
            recorded
            for recorded in self.tasks
            if (task is None or recorded.task is task)
            and (not with_arguments or recorded.was_called_with(args or (), kwargs or {}))
            and (queue is None or recorded.queue == queue)
            and (priority is None or recorded.priority == priority)
            and (tags is None or {*tags} <= {*recorded.tags})
            and (eta is None or recorded.eta == eta)
        ]

    def assert_enqueued(
        self,
        task: Task[..., Any],
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        count: int | None = None,
        **options: Unpack[MatchOptions],
    ) -> EnqueuedTask:
        """Return the first recorded task that matches. `options`: as in `matching`.

        `count`: the exact number of matching tasks (None: one or more). Raises `AssertionError`, with a list of what
        was enqueued.
        """
        found = self.matching(task, args, kwargs, **options)
        if not found or count not in (None, len(found)):
            wanted = _wanted(task, args, kwargs, options)
            times = "not enqueued" if not found else f"enqueued {len(found)} times, not {count}"
            raise AssertionError(f"{wanted} was {times}. {self._listing()}")
        return found[0]

    def assert_not_enqueued(
        self,
        task: Task[..., Any] | None = None,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[MatchOptions],
    ) -> None:
        """Raise `AssertionError` if a recorded task matches; without arguments, if any task was enqueued."""
        if self.matching(task, args, kwargs, **options):
            wanted = "A task" if task is None else _wanted(task, args, kwargs, options)
            raise AssertionError(f"{wanted} was enqueued. {self._listing()}")

    def _listing(self) -> str:
        if not self.tasks:
            return "Nothing was enqueued."
        return "Enqueued were:\n" + "\n".join(f"  {recorded}" for recorded in self.tasks)


_active: Final[list[Recorder]] = []
"""Recorders of nested `record()`, the innermost last."""


class _RecordingDispatcher(TaskDispatcher):
    """Records messages, and sends nothing."""

    def send(self, planned: PlannedJobs, groups: Sequence[PlannedGroup] = (), using: str | None = None) -> None:
        if covers(self.on_commit | self.outbox, planned, groups):
            self.send_on_commit(planned, using, groups=groups)
        elif using is not None:
            raise InvalidArgument(USING_NEEDS)
        else:
            _active[-1].add(planned, groups)

    async def asend(self, planned: PlannedJobs, groups: Sequence[PlannedGroup] = (), using: str | None = None) -> None:
        _active[-1].add(planned, groups)

    def send_on_commit(
        self, planned: PlannedJobs, using: str | None, robust: bool = False, groups: Sequence[PlannedGroup] = ()
    ) -> None:
        transaction.on_commit(lambda: _active[-1].add(planned, groups), using=using, robust=robust)


@contextmanager
def record() -> Iterator[Recorder]:
    """Record the tasks that any thread of this process enqueues in the block; none of them is enqueued.

    Tasks that wait for a commit are recorded when the transaction is committed. In Django's `TestCase`, use
    `captureOnCommitCallbacks(execute=True)`.
    """
    recorder = Recorder()
    _active.append(recorder)
    earlier = use_dispatcher(_RecordingDispatcher)
    try:
        yield recorder
    finally:
        use_dispatcher(earlier)
        _active.remove(recorder)


def assert_enqueued(
    task: Task[..., Any],
    args: Sequence[object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    count: int | None = None,
    **options: Unpack[MatchOptions],
) -> EnqueuedTask:
    """Call `Recorder.assert_enqueued` of the innermost active recorder."""
    return _recorder().assert_enqueued(task, args, kwargs, count=count, **options)


def assert_not_enqueued(
    task: Task[..., Any] | None = None,
    args: Sequence[object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    **options: Unpack[MatchOptions],
) -> None:
    """Call `Recorder.assert_not_enqueued` of the innermost active recorder."""
    _recorder().assert_not_enqueued(task, args, kwargs, **options)


def _recorder() -> Recorder:
    if not _active:
        raise RuntimeError(
            "Tasks are not being recorded. "
            "Use `with record():`, the pytest fixture `enqueued_tasks`, or QlessTestMixin."
        )
    return _active[-1]


def _wanted(
    task: Task[..., Any],
    args: Sequence[object] | None,
    kwargs: Mapping[str, object] | None,
    options: Mapping[str, object],
) -> str:
    call = task.name if args is None and kwargs is None else _call_text(task, args or (), kwargs or {})
    extra = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"{call} with {extra}" if extra else call


def _call_text(task: Task[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    arguments = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{task.name}({', '.join(arguments)})"
