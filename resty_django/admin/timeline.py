"""Admin page "What happened": one timeline of failures, refusals, outages, alerts, deploys and edits."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.decorators import method_decorator
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from resty_django.models import Timeline
from resty_django.text import printable
from resty_django.timeline import HOUR, MINUTE, Chapter, Entry, Span, chapters, contributors

from .base import ReadOnlyAdmin
from .chart_axes import Axis, local, time_axis, time_marks
from .charts import Chart, Series
from .export import PARAMETERS, Sheet
from .formatting import duration
from .tables import Column, changed, filter_form, listing

REFRESH_SECONDS: Final = 10
MAX_LENGTH: Final = 300
AROUND: Final = 30 * MINUTE
"""Seconds before and after the time that is asked for by `at`."""
LONGEST: Final = 7 * 24 * HOUR
DEFAULT: Final = HOUR
PRESETS: Final = {
    1: gettext_lazy("Last hour"),
    6: gettext_lazy("Last 6 hours"),
    24: gettext_lazy("Last day"),
    48: gettext_lazy("Last 2 days"),
}
"""Time ranges that end now: hours, and labels."""
MARKS: Final = (10 * MINUTE, 30 * MINUTE, 6 * HOUR, 24 * HOUR)
"""Seconds between two marks of the time axis of a chart."""
COLUMNS: Final = (
    Column("time", gettext_lazy("Time"), time=True, of="at"),
    Column("part", gettext_lazy("Part")),
    Column("event", gettext_lazy("Event"), of=lambda row: f"{row.title} {row.level_text}"),
    Column("details", gettext_lazy("Details"), of="text"),
)
TIMES: Final = ("at", "from", "to", "hours")
"""URL parameters that select the time."""
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


class BadTime(ValueError):
    """A parameter that is not a time. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as the page shows it."""

    at: datetime
    part: str
    title: str
    text: str
    lasted: str
    level: str
    url: str

    @property
    def level_text(self) -> str:
        return {"warning": _("Warning"), "error": _("Error")}.get(self.level, "")


def span_of(parameters: Any, now: float, viewer: Any = None) -> Span:
    """Return the span of the URL's parameters: `at`, or `from` and `to`, or `hours` until now. Raise `BadTime`."""
    at, start, end = (str(parameters.get(name, "")).strip() for name in ("at", "from", "to"))
    if at:
        middle = _time(at, now)
        return Span(middle - AROUND, middle + AROUND, now, viewer)
    if not start and not end:
        hours = str(parameters.get("hours", ""))
        seconds = int(hours) * HOUR if hours.isdecimal() and len(hours) < 4 else DEFAULT
        return Span(now - min(max(seconds, HOUR), LONGEST), now, now, viewer)
    until = _time(end, now) if end else now
    since = _time(start, now) if start else until - DEFAULT
    if since >= until:
        raise BadTime(_("The beginning must be before the end."))
    return Span(max(since, until - LONGEST), until, now, viewer)


def _time(text: str, now: float) -> float:
    """Return the epoch seconds of `03:12` (the last time that it was so late), or of a date and a time."""
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        today = local(now).replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return (today if today.timestamp() <= now else today - timedelta(days=1)).timestamp()
    try:
        moment = parse_datetime(text)
        if moment is None:
            raise ValueError
        seconds = (moment if timezone.is_aware(moment) else timezone.make_aware(moment)).timestamp()
        if not LONGEST <= seconds <= now + LONGEST:
            raise ValueError
        return seconds
    except (ValueError, OverflowError):
        raise BadTime(
            _("“%(text)s” is not a time. Write 03:12, or 2026-03-29T03:12.") % {"text": printable(text, 50)}
        ) from None


class TimelineAdmin(ReadOnlyAdmin[Timeline]):
    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator([require_safe, never_cache])
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        now, error = time.time(), ""
        try:
            span = span_of(request.GET, now, request.user)
        except BadTime as problem:
            error = str(problem)
            span = span_of({}, now, request.user)
        answers = chapters(contributors(request.user), span)
        rows = list(self._rows(answers))
        day = _day(span)
        charts = [_chart(chapter, day) for chapter in answers if chapter.story.bars]
        is_recent = span.end >= now
        length = span.end - span.start
        context = {
            "title": capfirst(str(self.opts.verbose_name)),
            "error": error,
            "start": local(span.start),
            "end": local(span.end),
            "from_value": _field(span.start),
            "to_value": _field(span.end),
            "link": _query(request, span.start, span.end),
            "earlier": _query(request, span.start - length, span.start),
            "later": "" if is_recent else _query(request, span.end, min(now, span.end + length)),
            "presets": [(_with_time(request, hours=hours), label) for hours, label in PRESETS.items()],
            "rows": listing(request, COLUMNS, rows, default="time"),
            "filter": filter_form(request),
            "day": day,
            "hidden": [(key, value) for key in ("o", "find") if (value := request.GET.get(key))],
            "charts": [chart for chart in charts if any(any(series.values) for series in chart.series)],
            "errors": [
                (str(chapter.contributor.title), printable(chapter.error, MAX_LENGTH))
                for chapter in answers
                if chapter.error
            ],
            "notes": [
                (str(chapter.contributor.title), note)
                for chapter in answers
                for note in [*map(_printable, chapter.story.notes), *_omitted(chapter)]
            ],
            "live": is_recent and not error,
            "every": REFRESH_SECONDS,
            "exports": [
                Sheet("events", ("time", "until", "part", "level", "event", "details"), lambda: _sheet(answers)),
                *charts,
            ],
        }
        return self.page(request, "admin/resty_django/timeline/page.html", context)

    def _rows(self, answers: Sequence[Chapter]) -> Iterator[Row]:
        for chapter, entry in _ordered(answers):
            yield Row(
                local(entry.at),
                str(chapter.contributor.title),
                printable(entry.title, MAX_LENGTH),
                printable(entry.text, MAX_LENGTH),
                "" if entry.until is None else duration(entry.until - entry.at),
                entry.level,
                self._url(entry, chapter.contributor.page),
            )

    def _url(self, entry: Entry, page: str) -> str:
        name, arguments = entry.url or (page, ())
        try:
            return (
                reverse(f"{self.admin_site.name}:{name}", args=[quote(argument) for argument in arguments])
                if name
                else ""
            )
        except NoReverseMatch:
            return ""


def _ordered(answers: Sequence[Chapter]) -> list[tuple[Chapter, Entry]]:
    pairs = [(chapter, entry) for chapter in answers for entry in chapter.story.entries]
    return sorted(pairs, key=lambda pair: pair[1].at)


def _sheet(answers: Sequence[Chapter]) -> Iterator[Sequence[Any]]:
    for chapter, entry in _ordered(answers):
        until = None if entry.until is None else local(entry.until)
        yield local(entry.at), until, chapter.contributor.name, entry.level, entry.title, entry.text


def _day(span: Span) -> dict[str, Any]:
    """Return the changes of the URL that select 24 whole hours, of which the last contains the end of a span."""
    end = -(-span.end // HOUR) * HOUR
    since, until = (local(moment).isoformat(timespec="seconds") for moment in (end - 24 * HOUR, end))
    return {**dict.fromkeys(TIMES), "from": since, "to": until}


def _chart(chapter: Chapter, day: Mapping[str, Any]) -> Chart:
    story = chapter.story
    total = sum(count or 0 for bars in story.bars for count in bars.counts)
    return Chart(
        str(chapter.contributor.title),
        [Series(bars.kind, bars.label, bars.counts) for bars in story.bars],
        _axis(story.starts, story.step),
        y_label=_("%(what)s per minute") % {"what": story.y_label}
        if story.step == MINUTE
        else _("%(what)s per hour") % {"what": story.y_label},
        summary=f"{story.bars[0].label}: {total:g}",
        name=f"{chapter.contributor.name}-chart",
        day=day,
    )


def _axis(starts: Sequence[float], step: int) -> Axis:
    """Return the axis with about eight marks, also for other numbers of columns than 60 minutes."""
    every = next((mark for mark in MARKS if len(starts) * step <= 8 * mark), MARKS[-1])
    return replace(time_axis(starts, step), marks=time_marks(starts, every))


def _omitted(chapter: Chapter) -> list[str]:
    omitted = chapter.story.more
    return [_("%(count)d more entries are not shown. Choose a shorter time.") % {"count": omitted}] if omitted else []


def _printable(text: str) -> str:
    return printable(text, MAX_LENGTH)


def _field(moment: float) -> str:
    """Return the value of a field for a date and a time, rounded down to a minute."""
    return f"{local(moment):%Y-%m-%dT%H:%M}"


def _query(request: HttpRequest, start: float, end: float) -> str:
    """Return the URL query of a span, with its offset from UTC, so that it means the same to everybody."""
    since, until = (local(moment).isoformat(timespec="seconds") for moment in (start, end))
    return _with_time(request, **{"from": since, "to": until})


def _with_time(request: HttpRequest, **times: Any) -> str:
    """Return the page's URL query with another time, and the same order and filter of the events."""
    return changed(request, **{**dict.fromkeys((*TIMES, *PARAMETERS)), **times})
