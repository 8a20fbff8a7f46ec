"""The argument of callbacks: how a task or a group has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UnreadableReply


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The end of a task.

    - `jid`: its ID. `task`: its name.
    - `state`: complete, failed, skipped or canceled.
    - `result`: its return value; None unless it is complete, or if it keeps no result.
    - `failure_group`, `failure_message`: the group of its failure, and the message with the traceback; empty unless it
      has failed.
    """

    jid: str
    task: str
    state: str
    result: Any = None
    failure_group: str = ""
    failure_message: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the task has completed."""
        return self.state == "complete"

    @property
    def failed(self) -> bool:
        """Whether the task has failed."""
        return self.state == "failed"


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The end of a group.

    - `id`, `name`: of the group.
    - `state`: complete, or failed if a member has failed or was canceled.
    - `total`, `done`, `failed`, `skipped`, `canceled`: numbers of members.
    - `reason`: the ID of the member that failed first; None if none has failed.
    """

    id: str
    name: str
    state: str
    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    canceled: int = 0
    reason: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether no member has failed or was canceled."""
        return self.state == "complete"


def outcome_of(record: Any) -> TaskOutcome | GroupOutcome:
    """Return the outcome that the core has added to the data of a callback. Raises `UnreadableReply`."""
    try:
        if "group" in record:
            counts = {name: int(record[name]) for name in ("total", "done", "failed", "skipped", "canceled")}
            return GroupOutcome(
                record["group"], record["name"], record["state"], **counts, reason=record.get("reason") or None
            )
        failure = record.get("failure")
        failure = failure if isinstance(failure, Mapping) else {}
        return TaskOutcome(
            record["jid"],
            record.get("klass") or "",
            record["state"],
            record.get("result"),
            failure.get("group", ""),
            failure.get("message", ""),
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        raise UnreadableReply(
            "The data of this callback contains no outcome. Only the end of a task or a group enqueues it; "
            "enqueue the task itself with delay()."
        ) from None
