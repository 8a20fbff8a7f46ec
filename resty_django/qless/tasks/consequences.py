"""Consequences of the end of a task or a group: callbacks, and policies for the tasks that wait for others.

They are sent with the job, and the core applies them in the step that ends it. See docs/reference/jobs/core.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from resty_django.text.suggestions import did_you_mean

from ..clients.put_options import POLICIES
from ..clients.serialization import encode

if TYPE_CHECKING:
    from .base import Task
    from .message import TaskMessage

Policy: TypeAlias = Literal["fail", "skip", "release", "wait"]
"""Action of a task if one for which it waits has failed."""

ANY: Final = ""
"""In `policies`: all tasks for which there is no other policy."""


class PlannedJob(NamedTuple):
    """A message, with the task that it is for: eager mode runs it."""

    task: Task[..., Any]
    message: TaskMessage


class PlannedCallback(NamedTuple):
    """A task to enqueue when another task, or a group, has ended. `delay`: seconds after the end."""

    task: Task[..., Any]
    message: TaskMessage
    delay: float = 0.0

    def entry(self) -> list[Any]:
        """Return the list that the core expects: jid, queue, klass, data, options."""
        message = self.message
        values = {
            "priority": message.options.priority,
            "tags": [*message.options.tags] or None,
            "retries": message.options.retries,
            "delay": self.delay or None,
            "outcome": None if message.consequences is None else message.consequences.texts(),
        }
        options = {name: value for name, value in values.items() if value is not None} | message.ids
        data = message.data if isinstance(message.data, str) else message.data.decode()
        return [message.jid, message.queue, message.klass, data, *([options] if options else [])]


@dataclass(frozen=True, slots=True)
class Consequences:
    """The consequences of a task's end.

    - `success`, `failure`, `complete`: callbacks after success, after failure, after any end.
    - `policies`: what the task does if one that it waits for has failed, by its ID, or `ANY`.
    - `group`: the ID of the group that counts it; empty: none.
    """

    success: tuple[PlannedCallback, ...] = ()
    failure: tuple[PlannedCallback, ...] = ()
    complete: tuple[PlannedCallback, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    group: str = ""

    def callback_texts(self) -> dict[str, str]:
        """Return the callbacks that exist, as JSON lists."""
        lists = {"success": self.success, "failure": self.failure, "complete": self.complete}
        return {
            name: encode([callback.entry() for callback in callbacks]).decode()
            for name, callbacks in lists.items()
            if callbacks
        }

    def texts(self) -> dict[str, str]:
        """Return the object for the option `outcome` of the command `put`."""
        fields = self.callback_texts()
        for jid, policy in self.policies.items():
            fields["policy" if jid == ANY else f"policy:{jid}"] = policy
        if self.group:
            fields["group"] = self.group
        return fields


def checked_policy(policy: object) -> str:
    """Return a policy. Raises `TypeError` if there is none with this name."""
    if policy in POLICIES:
        return str(policy)
    hint = did_you_mean(policy, POLICIES, "Use one of them.") if isinstance(policy, str) else "Use one of them."
    raise TypeError(f"if_failed= must be one of {', '.join(map(repr, POLICIES))}, not {policy!r}. {hint}")
