"""The job queue's contribution to the timeline: failed jobs by group and minute."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.conf import raw_section
from resty_django.extras import MissingExtra
from resty_django.timeline import Bars, Entry, Span, Story, story

from .models import token

if TYPE_CHECKING:
    from .clients.client import Client

MOST_GROUPS: Final = 50
MOST_JOBS: Final = 200
"""Maximum number of jobs of a group that are examined."""
PAGE: Final = 100


def contribution(span: Span) -> Story:
    """Return failures that operators have not retried or canceled since."""
    from .clients.default import default_client

    try:
        client = default_client()
        client.source.sync()
    except MissingExtra:
        if raw_section("QLESS"):
            raise
        return Story()
    groups = client.jobs.failed()
    columns = span.columns()
    counts: Counter[tuple[str, int]] = Counter()
    notes = [_("Failed jobs that were retried or canceled since are not counted.")]
    largest = sorted(groups, key=lambda group: -groups[group])
    for group in largest[:MOST_GROUPS]:
        times, is_cut = _failures(client, group, groups[group], span)
        counts.update((group, int(at // span.step) * span.step) for at in times)
        if is_cut:
            notes.append(
                _("Of the group %(group)s, only the last %(count)d failures are shown.")
                % {"group": group, "count": MOST_JOBS}
            )
    if len(groups) > MOST_GROUPS:
        notes.append(_("Only the %(count)d largest groups are shown.") % {"count": MOST_GROUPS})
    by_column: Counter[int] = Counter()
    for (_group, start), count in counts.items():
        by_column[start] += count
    entries = [
        Entry(
            max(start, span.start),
            ngettext("%(count)d job failed: %(group)s", "%(count)d jobs failed: %(group)s", count)
            % {"count": count, "group": group},
            "",
            None,
            "error",
            ("resty_qless_failuregroup_change", (token(group),)),
        )
        for (group, start), count in counts.items()
    ]
    bars = [Bars("failed", _("Failed jobs"), [by_column[start] for start in columns])]
    return story(entries, starts=columns, step=span.step, bars=bars, y_label=_("failed jobs"), notes=notes)


def _failures(client: Client, group: str, total: int, span: Span) -> tuple[list[float], bool]:
    """Return the times of failures in the span, and whether older ones in it were left out."""
    first = _first_before(client, group, total, span.end) if span.end < span.now else 0
    times: list[float] = []
    while first < total and len(times) < MOST_JOBS:
        jobs = client.jobs.failed(group, first, PAGE).jobs
        moments = [float(job.failure.get("when") or 0) for job in jobs]
        times += [moment for moment in moments if span.contains(moment)]
        if len(jobs) < PAGE or moments[-1] < span.start:
            return times, False
        first += PAGE
    return times, first < total


def _first_before(client: Client, group: str, total: int, end: float) -> int:
    """Return the position of the newest job that failed before `end`; the newest job of a group is the first."""
    low, high = 0, total
    while low < high:
        middle = (low + high) // 2
        jobs = client.jobs.failed(group, middle, 1).jobs
        if jobs and float(jobs[0].failure.get("when") or 0) >= end:
            low = middle + 1
        else:
            high = middle
    return low
