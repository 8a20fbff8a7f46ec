"""What the overview of the queues shows beside their counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..pauses import REASON
from ..texts import read, reader, text
from ..values import QueueCounts, Throughput
from . import shown
from .sources import plain
from .tables import Column, Row, Table, table

WORST: Final = 10
"""Groups of failures that are shown."""

_THROUGHPUT: Final = reader(Throughput)


def tiles(
    client: Any, counts: Sequence[QueueCounts], groups: dict[str, int], workers: Sequence[Any]
) -> list[dict[str, Any]]:
    """The jobs of all queues by state, failures, tracked jobs and workers."""
    failed = sum(groups.values())
    stalled = sum(each.stalled for each in counts)
    return [
        *(
            {
                "label": _(state.capitalize()),
                "value": shown.number(sum(getattr(each, state) for each in counts)),
                "url": shown.list_url("job", state=state),
                "alarm": state == "stalled" and stalled,
            }
            for state in shown.QUEUE_STATES
        ),
        {
            "label": _("Failed"),
            "value": shown.number(failed),
            "url": shown.list_url("failuregroup"),
            "alarm": failed,
        },
        {
            "label": _("Tracked"),
            "value": shown.number(plain(client, "ZCARD", "tracked")),
            "url": shown.list_url("job", tracked="1"),
        },
        {
            "label": _("Workers"),
            "value": shown.number(len(workers)),
            "url": shown.list_url("worker"),
            "alarm": not workers and any(each.waiting for each in counts),
        },
    ]


def worst(request: HttpRequest, groups: dict[str, int]) -> Table:
    """The groups with the most failures."""
    most = sorted(groups.items(), key=lambda pair: -pair[1])[:WORST]
    columns = (Column("group", _("Failure group"), sorts=False), Column("count", _("Jobs"), number=True, sorts=False))
    rows = [Row({"group": shown.link("failuregroup", group), "count": shown.number(count)}) for group, count in most]
    return table(request, columns, rows, caption=_("Most failures"), empty=_("No job has failed."), sortable=False)


def handed_out(counts: QueueCounts, reason: str, may_pause: bool) -> Any:
    """Whether the queue hands out jobs, and the door that changes it."""
    page, word = ("unpause", _("unpause")) if counts.paused else ("pause", _("pause"))
    door = format_html('<a href="{}">{}</a>', shown.url("queue", counts.name, page), word) if may_pause else ""
    if counts.paused:
        return format_html("{} {} {}", shown.state("paused"), shown.name(reason, 60) if reason else "", door)
    return format_html("{} {}", _("yes"), door)


def hours(client: Any, names: Sequence[str]) -> dict[str, Sequence[int]]:
    """The jobs completed in each minute of the last hour, by queue."""
    replies = client.call_many([("throughput", called) for called in names]) if names else []
    return {
        called: read(reply, _THROUGHPUT).minutes
        for called, reply in zip(names, replies, strict=True)
        if not isinstance(reply, Exception)
    }


def reasons(client: Any, names: Sequence[str]) -> dict[str, str]:
    """Why queues are paused, of those that have a reason."""
    replies = client.call_many([("config.get", f"{called}-{REASON}") for called in names]) if names else []
    return {called: text(reply) for called, reply in zip(names, replies, strict=True) if isinstance(reply, bytes)}


__all__ = ["handed_out", "hours", "reasons", "tiles", "worst"]
