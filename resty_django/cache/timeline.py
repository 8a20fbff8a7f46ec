"""The caches' contribution to the timeline: failed callbacks, and calls without the store."""

from __future__ import annotations

from collections import Counter

from django.utils.translation import gettext as _

from resty_django.timeline import HOUR, MINUTE, Bars, Entry, Span, Story, story

from .overview import histories
from .statistics.counts import History


def contribution(span: Span) -> Story:
    """Return failed callbacks and calls without L2: by minute in the last hour, else by hour."""
    step = MINUTE if span.start >= span.now - HOUR - MINUTE else HOUR
    columns = span.columns(step)
    errors: Counter[int] = Counter()
    known: set[int] = set()
    entries = []
    for name, history in histories():
        if not isinstance(history, History):
            continue
        url = ("resty_cache_cache_change", (name,))
        for start, counts in history.minutes if step == MINUTE else history.hours:
            if not span.contains(start, start + step - 1):
                continue
            known.add(start)
            errors[start] += counts.callback_errors
            where = _("in this minute") if step == MINUTE else _("in this hour")
            if counts.callback_errors:
                text = _("%(count)d callbacks failed: cache %(cache)s")
                values = {"count": counts.callback_errors, "cache": name}
                entries.append(Entry(start, text % values, where, None, "error", url))
            if counts.storeless:
                text = _("%(count)d calls without the store: cache %(cache)s")
                entries.append(
                    Entry(start, text % {"count": counts.storeless, "cache": name}, where, None, "error", url)
                )
    bars = [Bars("failed", _("Failed callbacks"), [errors[at] if at in known else None for at in columns])]
    notes = [_("Caches have figures by minute for the last hour, and by hour for two days.")]
    return story(entries, starts=columns, step=step, bars=bars, y_label=_("failed callbacks"), notes=notes)
