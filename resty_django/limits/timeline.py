"""The limits' contribution to the timeline: refusals, and decisions without the store."""

from __future__ import annotations

from collections import Counter

from django.utils.translation import gettext as _

from resty_django.timeline import HOUR, MINUTE, Bars, Entry, Span, Story, story

from .statistics.catalog import BAN, POLICY, kind_and_name
from .statistics.reporter import stats


def contribution(span: Span) -> Story:
    """Return refusals by limit: by minute in the last hour, else by hour. A ban's limit counts its refusals, too."""
    stats.flush()
    step = MINUTE if span.start >= span.now - HOUR - MINUTE else HOUR
    columns = span.columns(step)
    refused: Counter[int] = Counter()
    known: set[int] = set()
    entries = []
    for series in stats.names():
        kind, name = kind_and_name(series)
        if kind == BAN:
            continue
        for start, totals in stats.minutes(series) if step == MINUTE else stats.hours(series):
            if not span.contains(start, start + step - 1):
                continue
            known.add(start)
            refused[start] += totals.refused
            url = ("resty_limits_limitpolicy_changelist", ()) if kind == POLICY else None
            if totals.refused:
                text = _("%(refused)d of %(all)d requests refused: %(limit)s")
                values = {"refused": totals.refused, "all": totals.all, "limit": name}
                entries.append(Entry(start, text % values, _span(step), None, "warning", url))
            if totals.failed:
                text = _("%(count)d decisions without the store: %(limit)s")
                values = {"count": totals.failed, "limit": name}
                entries.append(Entry(start, text % values, _span(step), None, "error", url))
    bars = [Bars("bar", _("Refused requests"), [refused[at] if at in known else None for at in columns])]
    notes = [_("Limits have figures by minute for the last hour, and by hour for two days.")]
    return story(entries, starts=columns, step=step, bars=bars, y_label=_("refused requests"), notes=notes)


def _span(step: int) -> str:
    return _("in this minute") if step == MINUTE else _("in this hour")
