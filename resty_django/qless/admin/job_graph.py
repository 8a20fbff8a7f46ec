"""Dependency graph of a job as server-side SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any, Final, TypeAlias

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..clients.graph import groups_of
from ..clients.job import Job
from ..clients.replies import Group
from . import formatting
from .job_lists import fetch_jobs
from .rows import state_of

Node: TypeAlias = Job | Group | str
"""A job or a group of a graph; a string is the jid of a job that does not exist."""
MOST_ROWS: Final = 12
"""Maximum number of jobs in a column; a line below it counts the others."""
DEPTH: Final = 4
"""Maximum distance from the job, in steps."""
_ID_LENGTH: Final = 16
_LINE: Final = 24
"""Height of the line that counts omitted jobs."""
_BOX: Final = (180, 44)
_GAP: Final = (60, 14)


def graph(client: Any, job: Job) -> SafeString | str:
    """Return the dependency graph: dependencies on the left, dependents on the right, each with a link.

    Empty if the job has neither.
    """
    columns, edges, omitted = _columns(client, job)
    if len(columns) < 2:
        return ""
    now = client.clock()
    positions: dict[str, tuple[int, int]] = {}
    most_rows = max(len(jobs) for jobs in columns.values())
    first_column = min(columns)
    for column, jobs in columns.items():
        top = (most_rows - len(jobs)) * (_BOX[1] + _GAP[1]) // 2
        for row, node in enumerate(jobs):
            positions[_id(node)] = (
                (column - first_column) * (_BOX[0] + _GAP[0]) + 2,
                top + row * (_BOX[1] + _GAP[1]) + 2,
            )
    width = len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0] + 4
    height = most_rows * (_BOX[1] + _GAP[1]) - _GAP[1] + 4 + (_LINE if omitted else 0)
    paths = [
        _edge_path(positions[source], positions[target])
        for source, target in sorted(edges)
        if source in positions and target in positions
    ]
    return format_html(
        '<svg class="resty-graph" viewBox="0 0 {} {}" width="{}" height="{}" role="group" aria-label="{}">{}{}{}</svg>',
        width,
        height,
        width,
        height,
        _("Jobs that depend on each other"),
        format_html_join("", '<path class="resty-edge" d="{}"/>', ((line,) for line in paths)),
        format_html_join("", "{}", ((box,) for box in _boxes(columns, positions, job.jid, now))),
        format_html_join(
            "",
            '<text class="resty-second" x="{}" y="{}">{}</text>',
            (
                (
                    (column - first_column) * (_BOX[0] + _GAP[0]) + 10,
                    height - 8,
                    ngettext("and %(count)s more job", "and %(count)s more jobs", count)
                    % {"count": formatting.number(count)},
                )
                for column, count in omitted.items()
            ),
        ),
    )


def _columns(client: Any, job: Job) -> tuple[dict[int, list[Node]], set[tuple[str, str]], dict[int, int]]:
    """Return the graph's jobs, its edges as pairs of jids, and the number of jobs that it leaves out.

    Jobs and numbers are by distance from `job`, negative for dependencies.
    """
    columns: dict[int, list[Node]] = {0: [job]}
    omitted: dict[int, int] = {}
    edges: set[tuple[str, str]] = set()
    jids = {job.jid}
    for direction in (-1, 1):
        level: Sequence[Job] = [job]
        for depth in range(1, DEPTH + 1):
            neighbours = {node.jid: node.dependencies if direction < 0 else node.dependents for node in level}
            all_jids = [jid for jid in dict.fromkeys(chain.from_iterable(neighbours.values())) if jid not in jids]
            next_jids = all_jids[:MOST_ROWS]
            jids.update(next_jids)
            edges |= {
                (neighbour, jid) if direction < 0 else (jid, neighbour)
                for jid, all_neighbours in neighbours.items()
                for neighbour in all_neighbours
                if neighbour in jids
            }
            if not next_jids:
                break
            if len(all_jids) > len(next_jids):
                omitted[direction * depth] = len(all_jids) - len(next_jids)
            level, missing = fetch_jobs(client, next_jids)
            groups = client.run(groups_of(client, missing)) if missing else {}
            columns[direction * depth] = [*level, *(groups.get(jid, jid) for jid in missing)]
    return dict(sorted(columns.items())), edges, omitted


def _boxes(
    columns: Mapping[int, list[Node]], positions: Mapping[str, tuple[int, int]], own_jid: str, now: float
) -> Iterator[SafeString]:
    for jobs in columns.values():
        start = _first_difference([_id(node) for node in jobs])
        for node in jobs:
            jid, state, title, model = _id(node), "gone", "", "job"
            if isinstance(node, Job):
                state, title = state_of(node, now), node.klass.rpartition(".")[2]
            elif isinstance(node, Group):
                state, title, model = node.state, node.name or _("group"), "jobgroup"
            x, y = positions[jid]
            yield format_html(
                '<a href="{}" aria-label="{}"><title>{}</title><rect class="resty-box {} resty-is-{}" x="{}" y="{}" '
                'width="{}" height="{}" rx="4"/><text x="{}" y="{}">{}</text>'
                '<text class="resty-second" x="{}" y="{}">{} · {}</text></a>',
                formatting.url(model, jid),
                f"{formatting.name(jid)}, {formatting.name(title)}, {formatting.state_name(state)}",
                formatting.name(jid),
                "resty-own" if jid == own_jid else "",
                "other" if isinstance(node, str) else state,
                x,
                y,
                *_BOX,
                x + 8,
                y + 18,
                formatting.name(title, 22),
                x + 8,
                y + 35,
                _excerpt(formatting.name(jid), start),
                formatting.state_name(state),
            )


def _first_difference(ids: Sequence[str]) -> int:
    """Return the position from which the IDs of a column differ; 0 for a single one."""
    columns = zip(*map(formatting.name, ids), strict=False)
    return len(list(takewhile(lambda characters: len(set(characters)) == 1, columns))) if len(ids) > 1 else 0


def _excerpt(jid: str, start: int) -> str:
    """Return the part of a jid that fits into a box and differs from the others of its column."""
    if len(jid) <= _ID_LENGTH:
        return jid
    start = max(0, start - 4) if start > _ID_LENGTH - 6 else 0
    end = start + _ID_LENGTH
    return ("…" if start else "") + jid[start:end] + ("…" if end < len(jid) else "")


def _id(node: Node) -> str:
    return node if isinstance(node, str) else node.id if isinstance(node, Group) else node.jid


def _edge_path(source: tuple[int, int], target: tuple[int, int]) -> str:
    start, end = (source[0] + _BOX[0], source[1] + _BOX[1] // 2), (target[0], target[1] + _BOX[1] // 2)
    middle = (start[0] + end[0]) // 2
    return f"M{start[0]} {start[1]}C{middle} {start[1]} {middle} {end[1]} {end[0]} {end[1]}"
