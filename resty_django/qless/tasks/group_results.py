"""Results of groups: `GroupResult`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from resty_django.conf import conf

from ..clients.client import Client
from ..clients.replies import Group
from ..clients.serialization import decode
from ..clients.transport import Steps, sync_and_async
from ..errors import GroupError, NoSuchJob, TaskFailed
from . import eager
from .results import (
    EAGER_STATES,
    FAILURE,
    GONE,
    PENDING,
    SKIPPED,
    STARTED,
    STATES,
    SUCCESS,
    WAITING,
    AsyncResult,
    TaskResult,
    is_in_outbox,
    pauses,
    result_replies,
    revoke_in_outbox,
    value_of,
)

_ENDS: Final = ("complete", "failed")
"""States of a group whose members have all ended."""


class GroupProgress(NamedTuple):
    """The numbers of a group's members by their state. `left`: those that have not ended."""

    done: int
    failed: int
    skipped: int
    canceled: int
    left: int
    total: int


class GroupResult(TaskResult):
    """The results of a group's tasks, in the group's order. `GroupResult(id)` finds a group again.

    Each attribute queries the server. Async methods begin with `a`. `parent`: in a chain, the result of the step before
    the group.
    """

    __slots__ = ("_results",)

    def __init__(
        self,
        id: str,
        *,
        client: Client | None = None,
        results: Sequence[AsyncResult[Any]] | None = None,
        parent: AsyncResult[Any] | GroupResult | None = None,
    ) -> None:
        super().__init__(id, client=client, parent=parent)
        self._results = None if results is None else tuple(results)

    @classmethod
    def restore(cls, id: str, client: Client | None = None) -> GroupResult:
        """Return the results of the group with this ID."""
        return cls(id, client=client)

    def __iter__(self) -> Iterator[AsyncResult[Any]]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> AsyncResult[Any]:
        return self.results[index]

    # --- members ---

    def _get_results(self) -> Steps[tuple[AsyncResult[Any], ...]]:
        """Return the results of the members, in the group's order."""
        if self._results is None:
            jids = yield from self._jids()
            self._results = tuple(AsyncResult(jid, client=self.client) for jid in jids)
        return self._results

    get_results, aresults = sync_and_async(_get_results)

    @property
    def results(self) -> tuple[AsyncResult[Any], ...]:
        """The results of the members, in the group's order."""
        return self.get_results()

    def _jids(self) -> Steps[list[str]]:
        if self.id in eager.groups:
            return eager.groups[self.id].jids
        return [jid for jid, _ in (yield from self.client.groups._jobs(self.id, 0, -1))]

    # --- state ---

    def _reply(self) -> Steps[Group | None]:
        if self.id in eager.groups:
            return eager.groups[self.id].reply()
        if conf.qless.eager:
            return None
        reply = yield from self.client.groups._get(self.id)
        if reply is not None or not conf.qless.outbox.is_used:
            return reply
        if (yield from is_in_outbox(self.id)):
            total = len(self._results or ())
            return Group(
                id=self.id,
                name="",
                state="open",
                total=total,
                left=total,
                done=0,
                failed=0,
                skipped=0,
                canceled=0,
                reason=None,
                incomplete=False,
                created_at=self.client.clock(),
                ended_at=None,
            )
        return (yield from self.client.groups._get(self.id))  # it may have been delivered in the meantime

    def _get_progress(self) -> Steps[GroupProgress]:
        reply = yield from self._reply()
        if reply is None:
            return GroupProgress(0, 0, 0, 0, 0, 0)
        return GroupProgress(reply.done, reply.failed, reply.skipped, reply.canceled, reply.left, reply.total)

    get_progress, aprogress = sync_and_async(_get_progress)

    @property
    def progress(self) -> GroupProgress:
        """The numbers of members that are done, failed, skipped, canceled and left, and the total."""
        return self.get_progress()

    def _get_name(self) -> Steps[str]:
        reply = yield from self._reply()
        return "" if reply is None else reply.name

    get_name, aname = sync_and_async(_get_name)

    @property
    def name(self) -> str:
        """The name of the group."""
        return self.get_name()

    def _get_state(self) -> Steps[str]:
        """Return PENDING (no member has ended), STARTED, SUCCESS, FAILURE (all have ended) or GONE."""
        reply = yield from self._reply()
        if reply is None:
            return GONE
        if reply.state in _ENDS:
            return STATES[reply.state]
        return PENDING if reply.left == reply.total else STARTED

    get_state, astate = sync_and_async(_get_state)

    @property
    def state(self) -> str:
        """PENDING (no member has ended), STARTED, SUCCESS, FAILURE (all have ended) or GONE."""
        return self.get_state()

    status = state

    def _ready(self) -> Steps[bool]:
        """Return whether all have ended."""
        return (yield from self._get_state()) in (SUCCESS, FAILURE)

    ready, aready = sync_and_async(_ready)

    def _successful(self) -> Steps[bool]:
        """Return whether all have ended, and none has failed or was canceled."""
        return (yield from self._get_state()) == SUCCESS

    successful, asuccessful = sync_and_async(_successful)

    def _failed(self) -> Steps[bool]:
        """Return whether at least one has failed."""
        return (yield from self._get_progress()).failed > 0

    failed, afailed = sync_and_async(_failed)

    def _completed_count(self) -> Steps[int]:
        """Return the number of tasks that have succeeded."""
        return (yield from self._get_progress()).done

    completed_count, acompleted_count = sync_and_async(_completed_count)

    # --- outcome ---

    def get(self, timeout: float | None = None) -> list[Any]:
        """Return a list of all return values. Waits for them, up to `timeout` seconds (None: indefinitely).

        Raises what `AsyncResult.get` raises, as soon as a member has failed or was canceled.
        """
        return cast("list[Any]", self._wait(self._values, timeout, "group"))

    async def aget(self, timeout: float | None = None) -> list[Any]:
        """Do the same for asyncio."""
        return cast("list[Any]", await self._await(self._values, timeout, "group"))

    join, ajoin = get, aget

    def iter_native(self, timeout: float | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield `(id, {"status": ..., "result": ...})` of the members as they end, up to `timeout` seconds.

        The result of a failed member is its `TaskFailed`, its status FAILURE. A skipped or canceled member has the
        result None and the status SKIPPED or GONE. Raises `TimeoutError`, `NoSuchJob`.
        """
        seen: set[str] = set()
        for pause in pauses(timeout, self.id, "group"):
            ended, is_last = self.client.run(self._ended(seen))
            yield from ended
            if is_last:
                return
            if not ended:
                time.sleep(pause)

    async def aiter_native(self, timeout: float | None = None) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Do the same for asyncio."""
        seen: set[str] = set()
        for pause in pauses(timeout, self.id, "group"):
            ended, is_last = await self.client.arun(self._ended(seen))
            for member in ended:
                yield member
            if is_last:
                return
            if not ended:
                await asyncio.sleep(pause)

    def _revoke(self) -> Steps[None]:
        """Cancel all members that have not ended, and the earlier steps of chains in the group that nothing else needs.

        Raises `GroupError` if the group does not exist, `DependencyError` if a task outside of it needs a member.
        """
        if conf.qless.eager:
            return
        was_in_outbox = yield from revoke_in_outbox(self.client, self.id, graph=True)
        try:
            yield from self.client.groups._cancel(self.id)
        except GroupError:
            if not was_in_outbox:
                raise

    revoke, arevoke = sync_and_async(_revoke)

    def _retry(self) -> Steps[int]:
        """Enqueue the members again that have failed, or the tasks because of which they failed; return how many.

        Raises `GroupError` if the group does not exist.
        """
        if conf.qless.eager:
            return 0
        return (yield from self.client.groups._retry(self.id))

    retry, aretry = sync_and_async(_retry)

    def _existing(self) -> Steps[Group]:
        reply = yield from self._reply()
        if reply is None:
            raise NoSuchJob(f"The group {self.id} does not exist: it has expired, or is not committed yet.")
        return reply

    def _values(self) -> Steps[Any]:
        """Return the values of all members; `WAITING` if some have not ended. Raises the failure of a member."""
        reply = yield from self._existing()
        if isinstance(reply.reason, str):
            if self.id in eager.groups:
                dict(eager.groups[self.id].ends)[reply.reason].get()
            yield from AsyncResult[Any](reply.reason, client=self.client)._raise_failure()
        if reply.canceled:
            raise NoSuchJob(f"{reply.canceled} tasks of the group {self.id} were canceled.")
        if reply.state == "failed":
            why = "its client did not finish enqueuing it" if reply.incomplete else "the failed task is gone"
            raise TaskFailed(self.id, "", f"The group {self.id} has failed: {why}.")
        if reply.state != "complete":
            return WAITING
        jids = yield from self._jids()
        if self.id in eager.groups:
            return [end.get() for _, end in eager.groups[self.id].ends]
        replies = yield from result_replies(jids)
        return [value_of(jid, result) for jid, result in zip(jids, replies, strict=True)]

    def _ended(self, seen: set[str]) -> Steps[tuple[list[tuple[str, dict[str, Any]]], bool]]:
        """Return the members that have ended and are not in `seen`, to which they are added; and whether no member can
        follow."""
        reply = yield from self._existing()
        if self.id in eager.groups:
            return [(jid, _native(end)) for jid, end in dict(eager.groups[self.id].ends).items()], True
        ended: list[tuple[str, dict[str, Any]]] = []
        if reply.total - reply.left > len(seen):
            states = dict((yield from self.client.groups._jobs(self.id, 0, -1)))
            jids = [jid for jid, state in states.items() if jid not in seen and state in ("complete", "failed", None)]
            seen.update(jids)
            complete = [jid for jid in jids if states[jid] == "complete"]
            results = dict(zip(complete, (yield from result_replies(complete)), strict=True))
            for jid in jids:
                result = results.get(jid)
                failure = None
                if states[jid] == "failed":
                    failure = yield from AsyncResult[Any](jid, client=self.client)._failure()
                if failure is not None:
                    ended.append((jid, {"status": FAILURE, "result": failure}))
                elif result is not None:
                    value = decode(result.result) if isinstance(result.result, str) else None
                    ended.append((jid, {"status": SKIPPED if result.skipped else SUCCESS, "result": value}))
                elif states[jid] is None:
                    ended.append((jid, {"status": GONE, "result": None}))
                else:  # it runs again
                    seen.discard(jid)
        return ended, reply.state in _ENDS


def _native(ended: eager.EagerEnd) -> dict[str, Any]:
    status = EAGER_STATES[ended.state]
    return {"status": status, "result": ended.error if status == FAILURE else ended.value}
