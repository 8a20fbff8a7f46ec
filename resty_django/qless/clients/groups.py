"""Groups of jobs: `client.groups`. A group counts its members, calls back at its end, and jobs can depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..errors import DependencyError, GroupError
from .graph import (
    ENDED_STATES,
    blocked,
    dependents_first,
    dependents_of_group,
    groups_of,
    members_of,
    outcomes_of,
    requeue,
)
from .job import JOBS_PER_CALL, Job
from .put_options import JOB_ENDS, Callback, JobOutcome, callbacks_text, read_callbacks
from .replies import Group, GroupList, GroupRecord, JobStates, group_of, group_of_record
from .serialization import LuaList, as_list, read, text
from .transport import RedisCommand, Steps, batches, sync_and_async

if TYPE_CHECKING:
    from .client import Client

Callbacks: TypeAlias = Iterable[Callback | Sequence[Any]]


class _GroupPage(msgspec.Struct):
    total: int
    groups: LuaList[GroupRecord]


class Groups:
    """The groups of jobs. A job becomes a member when it is put with the option `outcome={"group": id}`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def _open(
        self, id: str, name: str, *, on_success: Callbacks = (), on_failure: Callbacks = (), on_complete: Callbacks = ()
    ) -> Steps[str]:
        """Create a group to which members can be added; return its ID.

        The callbacks are put when the group completes, fails, or ends in either way. Each is a `Callback`, or a list
        `[jid, queue, klass, data, options]`. Close the group within an hour, else it ends as failed. Raises
        `GroupError` if it exists, and `InvalidArgument`.
        """
        options: list[str] = []
        for end, callbacks in zip(JOB_ENDS, (on_success, on_failure, on_complete), strict=True):
            encoded = callbacks_text(f"on_{end}", callbacks)
            if encoded != "[]":
                options += (end, encoded)
        yield "group.open", id, name, *options
        return id

    open, aopen = sync_and_async(_open)

    def _close(self, id: str) -> Steps[str]:
        """End the adding of members; return the state of the group: `running`, `complete` or `failed`.

        Raises `GroupError` if it does not exist.
        """
        return text((yield "group.close", id))

    close, aclose = sync_and_async(_close)

    def _get(self, id: str) -> Steps[Group | None]:
        """Return a group; None if it does not exist, or has expired."""
        reply = yield "group.get", id
        return None if reply is None else group_of(reply)

    get, aget = sync_and_async(_get)

    def __getitem__(self, id: str) -> Group | None:
        return self.get(id)

    def _jobs(self, id: str, offset: int = 0, count: int = 25) -> Steps[JobStates]:
        """Return at most `count` members (-1: all) from `offset` on, in the order of the puts: pairs of jid and state.

        The state is None if the job does not exist any more. More than 1000 are fetched in several calls.
        """
        return (yield from members_of(self.client, id, offset, count))

    jobs, ajobs = sync_and_async(_jobs)

    def _callbacks(self, id: str) -> Steps[JobOutcome | None]:
        """Return the callbacks of a group as a `JobOutcome`; None if the group does not exist."""
        texts = yield RedisCommand(("HMGET", f"{self.client.prefix}g:{id}", "name", *JOB_ENDS))
        if texts[0] is None:
            return None
        success, failure, complete = (read_callbacks(reply and text(reply)) for reply in texts[1:])
        return JobOutcome(success=success, failure=failure, complete=complete)

    callbacks, acallbacks = sync_and_async(_callbacks)

    def _cancel(self, id: str) -> Steps[int]:
        """Cancel all members that have not ended, and the jobs that only these depend on; return how many.

        Those are the earlier steps of chains that end in the group, and the members of groups within it. They are
        canceled in batches of 50, dependents first. Jobs that depend on the group follow their policies. Raises
        `GroupError` if the group does not exist; and `DependencyError`, before anything is canceled, if a job outside
        of the group depends on a member.
        """
        if (yield from self._get(id)) is None:
            raise GroupError(f"Group {id} does not exist")
        ordered = yield from _members_and_earlier_steps(self.client, id)
        for batch in batches(ordered, JOBS_PER_CALL):
            yield "cancel", *batch
        yield from self.client._tidy()
        return len(ordered)

    cancel, acancel = sync_and_async(_cancel)

    def _retry(self, id: str) -> Steps[int]:
        """Requeue the failed members, and the failed jobs that made members fail; return how many.

        Members that failed because of another job wait for it again. Raises `GroupError` if the group does not exist.
        """
        if (yield from self._get(id)) is None:
            raise GroupError(f"Group {id} does not exist")
        members = yield from self._jobs(id, 0, -1)
        jids = dict.fromkeys(jid for jid, state in members if state == "failed")
        failed = yield from self.client.jobs._multiget(*jids)
        outcomes = yield from outcomes_of(self.client, failed)
        causes = {outcome.blocked for outcome in outcomes.values() if outcome.blocked} - {job.jid for job in failed}
        jobs = [job for job in failed if not blocked(outcomes.get(job.jid))]
        jobs += [job for job in (yield from self.client.jobs._multiget(*sorted(causes))) if job.state == "failed"]
        return (yield from requeue(self.client, jobs))

    retry, aretry = sync_and_async(_retry)

    def _list(self, offset: int = 0, count: int = 25) -> Steps[GroupList]:
        """Return at most `count` groups from `offset` on, newest first, and the total number."""
        groups: list[Group] = []
        total, first, last = 0, offset, offset + count
        while first < last:
            size = min(100, last - first)
            page = read((yield "groups", first, size), _GroupPage)
            total = page.total
            groups += [group_of_record(record) for record in as_list(page.groups)]
            first += size
            if first >= total:
                break
        return GroupList(total, groups)

    list, alist = sync_and_async(_list)


def _members_and_earlier_steps(client: Client, id: str) -> Steps[list[str]]:
    """Return the jids that `cancel` cancels, dependents first."""
    members = {
        jid for jid, state in (yield from members_of(client, id)) if state is not None and state not in ENDED_STATES
    }
    jobs: dict[str, Job] = {}
    dependents: dict[str, list[str]] = {}
    needed: dict[str, list[str]] = {}  # jobs and groups for which a job waits, and the members of a group
    chosen, candidates, fresh = {id}, set[str](), members
    while fresh:
        pending_jobs = {
            job.jid: job for job in (yield from client.jobs._multiget(*fresh)) if job.state not in ENDED_STATES
        }
        outcomes = yield from outcomes_of(client, pending_jobs.values())
        jobs |= pending_jobs
        for jid, job in pending_jobs.items():
            dependents[jid] = [*job.dependents, *(outcomes[jid].groups if jid in outcomes else ())]
            needed[jid] = job.dependencies
        groups = yield from groups_of(client, fresh - pending_jobs.keys())
        for group_id in groups:
            dependents[group_id] = yield from dependents_of_group(client, group_id, limit=10_000)
            needed[group_id] = [jid for jid, _state in (yield from members_of(client, group_id))]
        candidates |= pending_jobs.keys() | groups.keys()
        visited = fresh | needed.keys()
        fresh = set()
        while needless := {jid for jid in candidates if jid in members or chosen.issuperset(dependents[jid])}:
            candidates -= needless
            chosen |= needless
            fresh.update(*(needed[jid] for jid in needless))
        fresh -= visited
    for jid in members & jobs.keys():
        for other in jobs[jid].dependents:
            if other not in chosen:
                raise DependencyError(
                    f"Job {other}, which is not a member of the group {id}, depends on its member {jid}. "
                    f"Cancel it first, or all connected jobs with cancel_graph()."
                )
    return [jid for jid in dependents_first(sorted(chosen), dependents) if jid in jobs and jid in chosen]
