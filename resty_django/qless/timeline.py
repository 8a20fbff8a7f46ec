"""The job queue's contribution to the timeline: failed jobs by group, and all failures by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.conf import raw_section
from resty_django.extras import MissingExtra
from resty_django.timeline import HOUR, MINUTE, Bars, Entry, Span, Story, story

from .models import token

if TYPE_CHECKING:
    from .clients.client import Client

MOST_GROUPS: Final = 25
"""Maximum number of groups with failures in the span that are shown."""
MOST_GROUPS_READ: Final = 40
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
    notes = [
        _("Groups do not contain failed jobs that were retried or canceled since."),
        _("Figures by class contain all failures: by minute for the last hour, and by hour for two days."),
    ]
    largest = sorted(groups, key=lambda group: (-groups[group], group))
    shown = _entries_of_groups(client, largest[:MOST_GROUPS_READ], span)
    if len(shown) == MOST_GROUPS < len(groups):
        notes.append(_("At most %(count)d groups with failures are shown, the largest ones.") % {"count": MOST_GROUPS})
    elif len(groups) > MOST_GROUPS_READ:
        notes.append(_("Only the %(count)d largest groups are searched for failures.") % {"count": MOST_GROUPS_READ})
    unit = MINUTE if span.start >= span.now - HOUR - MINUTE else HOUR
    figures = _figures(client, span, unit)
    entries = [*shown, *_entries_of_classes(figures, unit)]
    columns = span.columns(unit)
    counts = [figures[start].total() if start in figures else None for start in columns]
    bars = [Bars("failed", _("Failed jobs"), counts)]
    return story(entries, starts=columns, step=unit, bars=bars, y_label=_("failed jobs"), notes=notes)


def _entries_of_groups(client: Client, groups: Iterable[str], span: Span) -> list[Entry]:
    """Return an entry for each group with failures in the span, from the first of them to the last."""
    from .clients.failures import failures_between

    return [
        Entry(
            failures.first,
            ngettext("%(count)d job failed: %(group)s", "%(count)d jobs failed: %(group)s", failures.count)
            % {"count": failures.count, "group": group},
            "",
            failures.last if failures.last > failures.first else None,
            "error",
            ("resty_qless_failuregroup_change", (token(group),)),
        )
        for group, failures in failures_between(client, groups, span.start, span.end, most=MOST_GROUPS).items()
    ]


def _figures(client: Client, span: Span, unit: int) -> dict[int, Counter[str]]:
    """Return the failures by class, of each minute or hour of the span that has figures."""
    name, most = ("minute", 60) if unit == MINUTE else ("hour", 48)
    count = min(most, int(span.now // unit - span.start // unit) + 1)
    figures: dict[int, Counter[str]] = {}
    for figures_span in client.figures.spans(name, count):
        if span.contains(figures_span.start, figures_span.start + unit - 1):
            by_class = figures.setdefault(int(figures_span.start), Counter())
            for (_queue, klass), totals in figures_span.by_name.items():
                by_class[klass] += totals.failed
    return figures


def _entries_of_classes(figures: Mapping[int, Counter[str]], unit: int) -> list[Entry]:
    where = _("in this minute") if unit == MINUTE else _("in this hour")
    entries = []
    for start, by_class in figures.items():
        count = by_class.total()
        named = ", ".join(f"{klass or '-'}: {times}" for klass, times in by_class.most_common(MOST_CLASSES) if times)
        if count:
            title = ngettext("%(count)d failure by class", "%(count)d failures by class", count) % {"count": count}
            entries.append(Entry(start, title, f"{where}: {named}", None, "warning"))
    return entries
