"""Numbers, times, states and names as the pages of the job queue show them. All of it is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import ngettext

from resty_django.admin.shown import NONE, printable

from ..models import token

LONGEST_NAME: Final = 200
STATES: Final = ("waiting", "running", "stalled", "scheduled", "depends", "failed", "complete")
QUEUE_STATES: Final = ("running", "waiting", "scheduled", "stalled", "depends")

_SHAPES: Final = {
    "waiting": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8Z",
    "running": "M4 2l10 6-10 6Z",
    "stalled": "M8 1l7 13H1Zm-1 5v4h2V6Zm0 5v2h2v-2Z",
    "scheduled": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm-1 2h2v4h3v2H7Z",
    "depends": "M3 2h10v2l-3 4 3 4v2H3v-2l3-4-3-4Z",
    "failed": "M3 1l5 5 5-5 2 2-5 5 5 5-2 2-5-5-5 5-2-2 5-5-5-5Z",
    "complete": "M2 8l2-2 3 3 6-7 2 2-8 9Z",
    "paused": "M3 2h4v12H3Zm6 0h4v12H9Z",
    "recurring": "M8 2a6 6 0 1 0 6 6h-2a4 4 0 1 1-4-4v3l5-4-5-4Z",
}
_OTHER: Final = "M2 6h12v4H2Z"


def name(text: str, longest: int = LONGEST_NAME) -> str:
    """A foreign text in one line, bounded in length."""
    return printable(text, longest).replace("\n", " ") or NONE


def number(value: float | None) -> str:
    """With groups of three digits, and a fraction only where there is one."""
    if value is None:
        return NONE
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def jobs(count: float) -> str:
    """So many jobs, in words."""
    return ngettext("%(count)s job", "%(count)s jobs", int(count)) % {"count": number(count)}


def seconds(value: float) -> str:
    """A duration in the one or two units that tell most: "2 min 5 s"."""
    value = abs(value)
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.1f}".removesuffix(".0") + " s"
    for unit, length, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if value >= length:
            whole, rest = divmod(int(value), length)
            return f"{whole:,} {unit}" + (f" {rest // part} {lower}" if rest // part else "")
    return f"{value:.0f} s"


def moment(at: float | None, now: float) -> SafeString | str:
    """How long ago a time is, or how far ahead, with the exact time on hover."""
    if not at or not math.isfinite(at):
        return NONE
    try:
        exact = datetime.fromtimestamp(at, UTC)
        local = timezone.localtime(exact)
    except (OverflowError, OSError, ValueError):
        return NONE
    distance = at - now
    length = seconds(round(distance))
    words = "now" if abs(distance) < 1 else f"in {length}" if distance > 0 else f"{length} ago"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        exact.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        words,
    )


def state(word: str) -> SafeString:
    """A state by its word and a shape of its own; the colour is in the style sheet."""
    known = word if word in _SHAPES else "other"
    return format_html(
        '<span class="resty-state resty-is-{}"><svg viewBox="0 0 16 16" width="12" height="12" aria-hidden="true">'
        '<path d="{}"/></svg> {}</span>',
        known,
        _SHAPES.get(word, _OTHER),
        name(word, 40),
    )


def url(model: str, called: str, page: str = "change", **query: Any) -> str:
    """The address of a page about one thing."""
    return reverse(f"admin:resty_qless_{model}_{page}", args=[quote(token(called))]) + query_of(query)


def list_url(model: str, **query: Any) -> str:
    return reverse(f"admin:resty_qless_{model}_changelist") + query_of(query)


def query_of(values: dict[str, Any]) -> str:
    given = {key: value for key, value in values.items() if value not in ("", None, False)}
    return f"?{urlencode(given, errors='backslashreplace')}" if given else ""


def link(model: str, called: str, text: str | None = None) -> SafeString | str:
    """A link to the page of a queue, job, group, worker or tag."""
    if not called:
        return NONE
    return format_html('<a href="{}">{}</a>', url(model, called), name(called) if text is None else text)


def job_link(jid: str) -> SafeString | str:
    """A link to a job by the beginning of its jid."""
    if not jid:
        return NONE
    return format_html('<a class="resty-id" href="{}" title="{}">{}</a>', url("job", jid), name(jid), short(jid))


def short(jid: str) -> str:
    return name(jid, 12) if len(jid) > 20 else name(jid)


def tags(values: Iterable[str]) -> SafeString | str:
    return (
        format_html_join(
            " ",
            '<a class="resty-tag" href="{}">{}</a>',
            ((list_url("job", tag=token(str(each))), name(str(each), 40)) for each in values),
        )
        or NONE
    )


def counted(count: float, address: str) -> SafeString | str:
    """A number that leads to what it counts; none for 0."""
    return format_html('<a href="{}">{}</a>', address, number(count)) if count else "0"


def lines(*parts: Any) -> SafeString:
    return mark_safe("".join(format_html("{}", part) for part in parts))  # noqa: S308 - each part is escaped


__all__ = [
    "NONE",
    "QUEUE_STATES",
    "STATES",
    "counted",
    "job_link",
    "jobs",
    "lines",
    "link",
    "list_url",
    "moment",
    "name",
    "number",
    "query_of",
    "seconds",
    "short",
    "state",
    "tags",
    "url",
]
