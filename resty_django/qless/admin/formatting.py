"""Formatting of numbers, times, states and names for the job queue's pages; everything is escaped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext, pgettext_lazy

from resty_django.admin.formatting import NONE, date_time
from resty_django.admin.formatting import breakable as breakable
from resty_django.admin.formatting import duration as duration
from resty_django.admin.formatting import name as name
from resty_django.admin.formatting import number as number

from ..models import token

TAB_STATES: Final = ("running", "waiting", "scheduled", "stalled", "depends")
"""The states of jobs in a queue, in the order of columns and tabs."""
STATE_NAMES: Final = {
    "waiting": pgettext_lazy("state", "waiting"),
    "running": pgettext_lazy("state", "running"),
    "stalled": pgettext_lazy("state", "stalled"),
    "scheduled": pgettext_lazy("state", "scheduled"),
    "depends": pgettext_lazy("state", "depends"),
    "failed": pgettext_lazy("state", "failed"),
    "complete": pgettext_lazy("state", "complete"),
    "recurring": pgettext_lazy("state", "recurring"),
    "skipped": pgettext_lazy("state", "skipped"),
    "paused": pgettext_lazy("state", "paused"),
    "open": pgettext_lazy("state", "open"),
    "gone": pgettext_lazy("state", "gone"),
}
"""The states of jobs, groups and queues in words. Searches, exports and URLs use the keys."""

_SHAPES: Final = {
    "waiting": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8Z",
    "running": "M4 2l10 6-10 6Z",
    "stalled": "M8 1l7 13H1Zm-1 5v4h2V6Zm0 5v2h2v-2Z",
    "scheduled": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm-1 2h2v4h3v2H7Z",
    "depends": "M3 2h10v2l-3 4 3 4v2H3v-2l3-4-3-4Z",
    "failed": "M3 1l5 5 5-5 2 2-5 5 5 5-2 2-5-5-5 5-2-2 5-5-5-5Z",
    "complete": "M2 8l2-2 3 3 6-7 2 2-8 9Z",
    "skipped": "M2 2l5 6-5 6Zm6 0l5 6-5 6Z",
    "paused": "M3 2h4v12H3Zm6 0h4v12H9Z",
    "recurring": "M8 2a6 6 0 1 0 6 6h-2a4 4 0 1 1-4-4v3l5-4-5-4Z",
}


def job_count(count: float) -> str:
    """Return a text such as "1 job" or "5 jobs"."""
    return ngettext("%(count)s job", "%(count)s jobs", int(count)) % {"count": number(count)}


def age(seconds: float | None) -> str:
    """Return an age as a duration, or a dash for None."""
    return NONE if seconds is None else duration(seconds)


def seconds(value: object) -> str:
    """Return an option in seconds as a duration. A value that is not a number is returned as text."""
    try:
        return duration(float(str(value)))
    except (TypeError, ValueError, OverflowError):
        return name(str(value))


def relative_time(timestamp: float | None, now: float) -> SafeString | str:
    """Return the time relative to `now`, with the exact time as a tooltip."""
    if not timestamp or not math.isfinite(timestamp):
        return NONE
    try:
        exact = datetime.fromtimestamp(timestamp, UTC)
        local = timezone.localtime(exact)
    except (OverflowError, OSError, ValueError):
        return NONE
    distance = timestamp - now
    length = duration(round(distance))
    if abs(distance) < 1:
        relative = pgettext("time", "now")
    else:
        relative = (_("in %(time)s") if distance > 0 else _("%(time)s ago")) % {"time": length}
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        exact.isoformat(timespec="seconds"),
        f"{date_time(exact)} {local:%Z}",
        relative,
    )


def state_name(word: str) -> str:
    """Return the name of a state in the user's language."""
    return str(STATE_NAMES[word]) if word in STATE_NAMES else name(word, 40)


def state_title(word: str) -> str | Promise:
    """Return the name of a state as a heading, translated when it is rendered."""
    return capfirst(STATE_NAMES[word])


def states_text(counts: Counter[str]) -> str:
    """Return the number of jobs in each state, the most frequent state first: "12 failed, 3 waiting"."""
    return ", ".join(f"{number(count)} {state_name(word)}" for word, count in counts.most_common())


def state(word: str, *, named: bool = True) -> SafeString:
    """Return a state as an icon and its name. `named`: False for an icon alone, in links with a label."""
    return format_html(
        '<span class="resty-state resty-is-{}"><svg viewBox="0 0 16 16" width="12" height="12" aria-hidden="true">'
        '<path d="{}"/></svg>{}</span>',
        word if word in _SHAPES else "other",
        _SHAPES.get(word, "M2 6h12v4H2Z"),
        f" {state_name(word)}" if named else "",
    )


def url(model: str, name: str, page: str = "change", **query: object) -> str:
    """Return the URL of an object's page."""
    return reverse(f"admin:resty_qless_{model}_{page}", args=[quote(token(name))]) + query_of(query)


def url_from_list(model: str, name: str, operation: str) -> str:
    """Return the URL of an object's operation that leads back to the list, not to the object's page."""
    return url(model, name, operation, list=1)


def list_url(model: str, page: str = "changelist", /, **query: object) -> str:
    """Return the URL of a list, or of the bulk operations on it (`page`: "bulk")."""
    return reverse(f"admin:resty_qless_{model}_{page}") + query_of(query)


def query_of(values: Mapping[str, object]) -> str:
    query = {key: value for key, value in values.items() if value not in ("", None, False)}
    return f"?{urlencode(query, errors='backslashreplace')}" if query else ""


def link(model: str, target: str, text: str | None = None) -> SafeString | str:
    """Return a link to the page of a queue, job, group, worker or tag with the name `target`."""
    if not target:
        return NONE
    return format_html('<a href="{}">{}</a>', url(model, target), breakable(target) if text is None else text)


def job_link(jid: str) -> SafeString | str:
    """Return a link to a job that shows the beginning and the end of its jid."""
    return _id_link("job", jid) if jid else NONE


def enqueued(jid: str) -> SafeString:
    """Return the message about a new job."""
    return format_html("{} {}", _("Enqueued the job"), job_link(jid))


def group_link(group_id: str) -> SafeString | str:
    """Return a link to a group that shows the beginning and the end of its ID."""
    return _id_link("jobgroup", group_id)


def _id_link(model: str, key: str) -> SafeString:
    return format_html('<a class="resty-id" href="{}" title="{}">{}</a>', url(model, key), name(key), short(key))


def short(jid: str) -> str:
    """Return a jid on one line. A long jid loses its middle, since jids of one program often begin alike."""
    return name(jid) if len(jid) <= 20 else f"{name(jid[:9])}…{name(jid[-8:])}"


def tag_links(values: Iterable[str]) -> SafeString | str:
    links = ((list_url("job", tag=token(tag)), name(tag, 40)) for tag in map(str, values))
    return format_html_join(" ", '<a class="resty-tag" href="{}">{}</a>', links) or NONE


def joined(links: Iterable[tuple[str, str | Promise]]) -> SafeString | str:
    """Return links, each given as URL and text."""
    return format_html_join(" · ", '<a href="{}">{}</a>', links) or NONE


def count_link(count: float, address: str) -> SafeString | str:
    """Return a number that links to the jobs it counts; 0 has no link."""
    return format_html('<a href="{}">{}</a>', address, number(count)) if count else "0"
