"""The timeline of a job, and the jobs that it waits for and that wait for it, as SVG made by the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ..job import Job
from ..redact import without_secrets
from . import shown
from .rows import history_of, state_of
from .sources import fetched

MOST: Final = 40
"""Jobs in a graph."""
DEPTH: Final = 4
"""Steps away from the job."""
_AFTER: Final = {
    "put": "waiting",
    "popped": "running",
    "done": "complete",
    "failed": "failed",
    "failed-retries": "failed",
    "timed-out": "stalled",
    "throttled": "waiting",
}
_BOX: Final = (180, 44)
_GAP: Final = (60, 14)


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the history, with the seconds until the next one."""

    what: str
    when: SafeString | str
    lasted: str
    about: str


def events(job: Job, now: float) -> list[Event]:
    """The history, latest first."""
    history = history_of(job)
    found = []
    for place, entry in enumerate(history):
        at = _at(entry)
        until = _at(history[place + 1]) if place + 1 < len(history) else None
        more = without_secrets({key: value for key, value in entry.items() if key not in ("what", "when")})
        told = ", ".join(f"{ {'q': 'queue'}.get(key, key) } {value}" for key, value in more.items())
        lasted = shown.seconds(until - at) if until is not None and until > at else ""
        found.append(
            Event(shown.name(str(entry.get("what", ""))), shown.moment(at, now), lasted, shown.name(told, 300))
        )
    return found[::-1]


def timeline(job: Job, now: float) -> SafeString | str:
    """A strip of what the job did when; until now, where it has not ended."""
    history = history_of(job)
    spans: list[tuple[str, float, float]] = []
    for place, entry in enumerate(history):
        state = _AFTER.get(str(entry.get("what", "")), spans[-1][0] if spans else "waiting")
        start = _at(entry)
        last = place + 1 == len(history)
        end = _at(history[place + 1]) if not last else start if state in ("complete", "failed") else now
        spans.append((state, start, max(start, end)))
    if not spans or spans[-1][2] <= spans[0][1]:
        return ""
    first, whole, width = spans[0][1], spans[-1][2] - spans[0][1], 720
    rects = [
        (state, f"{(start - first) / whole * width:.1f}", f"{max(1.0, (end - start) / whole * width):.1f}",
         f"{state}: {shown.seconds(end - start)}")
        for state, start, end in spans
        if end > start
    ]  # fmt: skip
    return format_html(
        '<svg class="resty-timeline" viewBox="0 0 {} 24" width="{}" height="24" role="img" aria-label="{}">{}</svg>',
        width,
        width,
        "; ".join(rect[3] for rect in rects),
        format_html_join(
            "",
            '<rect class="resty-is-{}" x="{}" y="4" width="{}" height="16"><title>{}</title></rect>',
            rects,
        ),
    )


def graph(client: Any, job: Job) -> SafeString | str:
    """Those it waits for at the left, those that wait for it at the right; each a link. Empty: there are none."""
    columns, edges = _columns(client, job)
    if len(columns) < 2:
        return ""
    now = client.clock()
    places: dict[str, tuple[int, int]] = {}
    tallest = max(len(jobs) for jobs in columns.values())
    left = min(columns)
    for column, jobs in columns.items():
        above = (tallest - len(jobs)) * (_BOX[1] + _GAP[1]) // 2
        for place, each in enumerate(jobs):
            jid = each if isinstance(each, str) else each.jid
            places[jid] = ((column - left) * (_BOX[0] + _GAP[0]) + 2, above + place * (_BOX[1] + _GAP[1]) + 2)
    width = len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0] + 4
    height = tallest * (_BOX[1] + _GAP[1]) - _GAP[1] + 4
    lines = [_line(places[one], places[other]) for one, other in sorted(edges) if one in places and other in places]
    return format_html(
        '<svg class="resty-graph" viewBox="0 0 {} {}" width="{}" height="{}" role="group" aria-label="{}">{}{}</svg>',
        width,
        height,
        width,
        height,
        "Jobs that depend on each other",
        format_html_join("", '<path class="resty-edge" d="{}"/>', ((line,) for line in lines)),
        format_html_join("", "{}", ((box,) for box in _boxes(columns, places, job.jid, now))),
    )


def _columns(client: Any, job: Job) -> tuple[dict[int, list[Job | str]], set[tuple[str, str]]]:
    """Jobs by the number of steps before (less than 0) or after the job; and the pairs of one before another."""
    columns: dict[int, list[Job | str]] = {0: [job]}
    edges: set[tuple[str, str]] = set()
    seen = {job.jid}
    for direction in (-1, 1):
        level: Sequence[Job] = [job]
        for depth in range(1, DEPTH + 1):
            wanted: list[str] = []
            for each in level:
                others = each.dependencies if direction < 0 else each.dependents
                edges |= {(other, each.jid) if direction < 0 else (each.jid, other) for other in others[:MOST]}
                wanted += [jid for jid in others if jid not in seen and jid not in wanted]
            wanted = wanted[: MOST - len(seen)]
            if not wanted:
                break
            seen.update(wanted)
            level, gone = fetched(client, wanted)
            columns[direction * depth] = [*level, *gone]
    return dict(sorted(columns.items())), edges


def _boxes(
    columns: Mapping[int, list[Job | str]], places: Mapping[str, tuple[int, int]], own: str, now: float
) -> Iterator[SafeString]:
    for jobs in columns.values():
        for each in jobs:
            gone = isinstance(each, str)
            jid = each if isinstance(each, str) else each.jid
            state = "gone" if isinstance(each, str) else state_of(each, now)
            title = "" if isinstance(each, str) else each.klass.rpartition(".")[2]
            x, y = places[jid]
            yield format_html(
                '<a href="{}" aria-label="{}"><rect class="resty-box {} resty-is-{}" x="{}" y="{}" width="{}" '
                'height="{}" rx="4"/><text x="{}" y="{}">{}</text>'
                '<text class="resty-second" x="{}" y="{}">{} · {}</text></a>',
                shown.url("job", jid),
                f"{shown.short(jid)}, {state}",
                "resty-own" if jid == own else "",
                state if not gone else "other",
                x,
                y,
                *_BOX,
                x + 8,
                y + 18,
                shown.name(title, 22),
                x + 8,
                y + 35,
                shown.name(jid, 10),
                state,
            )


def _line(one: tuple[int, int], other: tuple[int, int]) -> str:
    start, end = (one[0] + _BOX[0], one[1] + _BOX[1] // 2), (other[0], other[1] + _BOX[1] // 2)
    middle = (start[0] + end[0]) // 2
    return f"M{start[0]} {start[1]}C{middle} {start[1]} {middle} {end[1]} {end[0]} {end[1]}"


def _at(entry: Mapping[str, Any]) -> float:
    when = entry.get("when")
    return float(when) if isinstance(when, int | float) else 0.0


__all__ = ["Event", "events", "graph", "timeline"]
