"""The job queue's contribution to the timeline: failed jobs by group, and all failures by class."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.conf import raw_section
from resty_django.extras import MissingExtra
from resty_django.timeline import HOUR, MINUTE, Bars, Entry, Span, Story, story

from .models import token

if TYPE_CHECKING:
    from .clients.client import Client

MOST_GROUPS: Final = 50
MOST_JOBS: Final = 200
"""Maximum number of jobs of a group that are examined."""
PAGE: Final = 100
MOST_CLASSES: Final = 5
"""Maximum number of classes that an entry names."""


def contribution(span: Span) -> Story:
    """Return failures by group, without jobs that were retried or canceled since, and failures by class, which include
    them."""
    from .clients.default import default_client

    try:
        client = default_client()
        client.source.sync()
    except MissingExtra:
        if raw_section("QLESS"):
            raise
        return Story()
    groups = client.jobs.failed()
    counts: Counter[tuple[str, int]] = Counter()
    notes = [
        _("Groups do not contain failed jobs that were retried or canceled since."),
        _("Figures by class contain all failures: by minute for the last hour, and by hour for two days."),
    ]
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
    figures = _figures(client, span)
    unit = _unit(span)
    in_groups: Counter[int] = Counter()
    for (_group, start), count in counts.items():
        in_groups[int(start // unit) * unit] += count
    entries += [
        _entry_of_classes(start, by_class, unit)
        for start, by_class in figures.items()
        if by_class.total() > in_groups[start]
    ]
    columns = span.columns()
    failed: Counter[int] = Counter()
    if unit == span.step:
        failed.update({start: by_class.total() for start, by_class in figures.items()})
    else:
        for (_group, start), count in counts.items():
            failed[start] += count
    bars = [Bars("failed", _("Failed jobs"), [failed[start] for start in columns])]
    return story(entries, starts=columns, step=span.step, bars=bars, y_label=_("failed jobs"), notes=notes)


def _unit(span: Span) -> int:
    """Return the resolution of the figures: a minute in the last hour, else an hour."""
    return MINUTE if span.start >= span.now - HOUR - MINUTE else HOUR


def _figures(client: Client, span: Span) -> dict[int, Counter[str]]:
    """Return the failures by class, of each minute or hour of the span that has figures."""
    unit, name, most = _unit(span), "minute", 60
    if unit == HOUR:
        name, most = "hour", 48
    count = min(most, int(span.now // unit - span.start // unit) + 1)
    figures: dict[int, Counter[str]] = {}
    for each in client.figures.spans(name, count):
        if span.contains(each.start, each.start + unit - 1):
            by_class = figures.setdefault(int(each.start), Counter())
            for (_queue, klass), totals in each.by_name.items():
                by_class[klass] += totals.failed
    return figures


def _entry_of_classes(start: int, by_class: Counter[str], unit: int) -> Entry:
    count = by_class.total()
    text = ngettext(
        "%(count)d failure, including jobs that were retried since",
        "%(count)d failures, including jobs that were retried since",
        count,
    )
    named = [f"{klass or '-'}: {times}" for klass, times in by_class.most_common(MOST_CLASSES) if times]
    where = _("in this minute") if unit == MINUTE else _("in this hour")
    return Entry(start, text % {"count": count}, f"{where}: {', '.join(named)}", None, "warning")


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
