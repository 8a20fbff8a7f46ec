"""Graphs of jobs that are connected through dependencies, dependents and groups; cancels or retries all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..errors import DependencyError, GraphTooLarge, NoSuchJob
from .job import JOBS_PER_CALL, Job, job_list
from .put_options import JobOutcome, options_of, read_outcome
from .replies import Group, JobStates, group_of
from .serialization import read_list, texts
from .transport import RedisCommand, Request, Steps, batches, checked

if TYPE_CHECKING:
    from .client import Client

MEMBERS_PER_CALL: Final = 1000
"""Maximum number of members of a group that one call returns."""
MAX_GRAPH_JOBS: Final = 10_000
"""Maximum number of jobs in a graph, unless another limit is passed."""
ENDED_STATES: Final = frozenset(("complete", "failed"))
"""States of jobs that have ended."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Connected jobs by jid, and the groups through which they are connected by ID.

    `outcomes`: the outcomes of the jobs that have any. `dependents`: the jids and group IDs that wait for a job or a
    group.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    outcomes: dict[str, JobOutcome] = field(default_factory=dict)
    dependents: dict[str, list[str]] = field(default_factory=dict)

    def not_complete(self) -> list[str]:
        """Return the jids of the jobs that are not complete, dependents before the jobs that they depend on."""
        ordered = dependents_first([*self.groups, *self.jobs], self.dependents)
        return [jid for jid in ordered if jid in self.jobs and self.jobs[jid].state != "complete"]

    def failed(self) -> list[Job]:
        """Return the jobs that failed in a run, not because of a job on which they depend."""
        return [job for jid, job in self.jobs.items() if job.state == "failed" and not blocked(self.outcomes.get(jid))]


def blocked(outcome: JobOutcome | None) -> bool:
    """Return whether a job failed because of another job."""
    return outcome is not None and outcome.blocked is not None


def dependents_first(jids: Iterable[str], dependents: Mapping[str, Collection[str]]) -> list[str]:
    """Return the jobs in order: dependents before the jobs that they depend on."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    for jid in jids:
        stack = [jid]
        while stack:
            top = stack[-1]
            if top not in entered:
                entered.add(top)
                stack += [dependent for dependent in dependents.get(top, ()) if dependent not in entered]
            else:
                order.setdefault(stack.pop())
    return list(order)


def graph_of(client: Client, jids: Iterable[str], limit: int) -> Steps[Graph]:
    """Return all jobs that are connected with jobs or groups; unknown ones are left out. Raises `GraphTooLarge`."""
    graph = Graph()
    seen = dict.fromkeys(jids)
    waiting = list(seen)
    while waiting:
        batch, waiting = waiting[:JOBS_PER_CALL], waiting[JOBS_PER_CALL:]
        multiget, *outcomes = yield [("multiget", *batch), *(("outcome", jid) for jid in batch)]
        jobs = {job.jid: job for job in job_list(client, checked(multiget))}
        missing = [jid for jid in batch if jid not in jobs]
        groups = (yield from groups_of(client, missing)) if missing else {}
        graph.jobs.update(jobs)
        graph.groups.update(groups)
        for jid, reply in zip(batch, outcomes, strict=True):
            outcome = read_outcome(checked(reply))
            if jid in jobs and outcome is not None:
                graph.outcomes[jid] = outcome
        connected: list[str] = []
        for jid, job in jobs.items():
            own_groups = graph.outcomes[jid].groups if jid in graph.outcomes else ()
            graph.dependents.setdefault(jid, []).extend((*job.dependents, *own_groups))
            connected += (*job.dependencies, *job.dependents, *own_groups)
        for group_id, group in groups.items():
            members: JobStates = []
            if group.total <= limit:
                members = yield from members_of(client, group_id)
            dependents = yield from dependents_of_group(client, group_id, limit)
            graph.dependents[group_id] = dependents
            for jid, _state in members:
                graph.dependents.setdefault(jid, []).append(group_id)
            connected += (*(jid for jid, _state in members), *dependents)
            if group.total > limit:
                raise too_large(limit)
        fresh = [jid for jid in dict.fromkeys(connected) if jid not in seen]
        seen.update(dict.fromkeys(fresh))
        waiting += fresh
        if len(graph.jobs) + len(waiting) > limit:
            raise too_large(limit)
    return graph


def too_large(limit: int) -> GraphTooLarge:
    return GraphTooLarge(f"More than {limit} jobs are connected. Pass a higher limit.")


def graph_of_existing(client: Client, jid: str, limit: int) -> Steps[Graph]:
    """Do the same as `graph_of` for one job or group. Raises `NoSuchJob` if it does not exist."""
    graph = yield from graph_of(client, [jid], limit)
    if not graph.jobs and not graph.groups:
        raise NoSuchJob(f"Job {jid} does not exist")
    return graph


def outcomes_of(client: Client, jobs: Iterable[Job]) -> Steps[dict[str, JobOutcome]]:
    """Return the outcomes of those jobs that have any; complete jobs have none any more."""
    jids = [job.jid for job in jobs if job.state != "complete"]
    outcomes: dict[str, JobOutcome] = {}
    for batch in batches(jids, JOBS_PER_CALL):
        for jid, reply in zip(batch, (yield [("outcome", jid) for jid in batch]), strict=True):
            outcome = read_outcome(checked(reply))
            if outcome is not None:
                outcomes[jid] = outcome
    return outcomes


def groups_of(client: Client, ids: Iterable[str]) -> Steps[dict[str, Group]]:
    """Return the groups with these IDs that exist."""
    groups: dict[str, Group] = {}
    for batch in batches(list(ids), JOBS_PER_CALL):
        for reply in (yield [("group.get", group_id) for group_id in batch]):
            if checked(reply) is not None:
                group = group_of(reply)
                groups[group.id] = group
    return groups


def members_of(client: Client, group_id: str, offset: int = 0, count: int = -1) -> Steps[JobStates]:
    """Return at most `count` members (-1: all) with their states, from `offset` on; state None: the job is gone."""
    members: JobStates = []
    while count < 0 or len(members) < count:
        size = MEMBERS_PER_CALL if count < 0 else min(MEMBERS_PER_CALL, count - len(members))
        page = read_list((yield "group.jobs", group_id, offset + len(members), size), tuple[str, str | bool])
        members += [(jid, state if isinstance(state, str) else None) for jid, state in page]
        if len(page) < size:
            break
    return members


def dependents_of_group(client: Client, group_id: str, limit: int) -> Steps[list[str]]:
    """Return the jids of the jobs that wait for a group, at most one more than `limit`."""
    key = f"{client.prefix}j:{group_id}-dependents"
    return texts((yield RedisCommand(("SRANDMEMBER", key, limit + 1))))


def cancel_all(client: Client, jid: str, limit: int) -> Steps[int]:
    """Cancel all jobs that are connected with a job or group and not complete; return their number."""
    graph = yield from graph_of_existing(client, jid, limit)
    starts = [*graph.jobs, *graph.groups]
    canceled = 0
    for remaining_rounds in reversed(range(5)):
        try:
            for batch in batches(graph.not_complete(), JOBS_PER_CALL):
                yield "cancel", *batch
                canceled += len(batch)
            break
        except DependencyError:  # a job was put that depends on one of them
            if not remaining_rounds:
                raise
        graph = yield from graph_of(client, starts, limit)
    yield from client._tidy()
    return canceled


def retry_all(client: Client, jid: str, limit: int) -> Steps[int]:
    """Requeue all jobs connected with a job or group that failed in a run; return their number."""
    graph = yield from graph_of_existing(client, jid, limit)
    return (yield from requeue(client, graph.failed()))


def requeue(client: Client, jobs: Iterable[Job]) -> Steps[int]:
    """Return failed jobs to their queues; return how many. Those that were requeued or canceled in the meantime stay
    as they are."""
    requeued = 0
    requests = [requeue_request(client, job) for job in jobs if job.queue_name]
    for batch in batches(requests, 10):  # each call searches for its job in a failure group's list
        for reply in (yield batch):
            if not isinstance(reply, NoSuchJob):
                checked(reply)
                requeued += 1
    if requeued:
        yield from client._tidy()
    return requeued


def requeue_request(client: Client, job: Job) -> Request:
    options = options_of(job.priority, job.tags, job.original_retries, job.dependencies)
    return (
        *("requeue", client.worker_name, job.queue_name, job.jid, job.klass, job.raw_data, 0),
        *(*options, "unique", "pending"),
    )
