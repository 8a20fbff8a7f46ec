"""Tiles, failure groups, throughput and pause state for the overview of queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from resty_django.admin.tables import Column, Row, Table, table

from ...clients.queue import PAUSE_REASON
from ...clients.replies import QueueCounts
from ...clients.serialization import text
from ...facts import Facts
from .. import formatting
from ..redis_reads import redis_command

WORST: Final = 10
"""Maximum number of failure groups shown."""


def tiles(client: Any, now: Facts) -> list[dict[str, Any]]:
    """Return tiles: jobs by state, failures, tracked jobs, workers that are not silent or gone, and the latency."""
    failed = sum(now.failed.values())
    return [
        *(
            {
                "label": formatting.state_title(state),
                "value": formatting.number(now.total(state)),
                "url": formatting.list_url("job", state=state),
                "alarm": state == "stalled" and now.total(state),
            }
            for state in formatting.QUEUE_STATES
        ),
        {
            "label": _("Failed"),
            "value": formatting.number(failed),
            "url": formatting.list_url("failuregroup"),
            "alarm": failed,
        },
        {
            "label": _("Tracked"),
            "value": formatting.number(redis_command(client, "ZCARD", "tracked")),
            "url": formatting.list_url("job", tracked="1"),
        },
        {
            "label": _("Workers"),
            "value": formatting.number(now.alive),
            "url": formatting.list_url("worker"),
            "alarm": not now.alive and now.total("waiting"),
        },
        {"label": _("Latency"), "value": formatting.age(now.latency)},
    ]


def largest_failure_groups(request: HttpRequest, groups: dict[str, int]) -> Table:
    """Return a table of the groups with the most failures."""
    largest = sorted(groups.items(), key=lambda pair: -pair[1])[:WORST]
    columns = (Column("group", _("Failure group")), Column("count", _("Jobs"), number=True))
    rows = [
        Row(
            {"group": formatting.link("failuregroup", group), "count": formatting.number(count)},
            {"group": group, "count": count},
        )
        for group, count in largest
    ]
    return table(
        request,
        columns,
        rows,
        caption=_("Most failures"),
        empty=_("No failed jobs."),
        parameter="o-failures",
        export="most-failures",
    )


def delivery_cell(counts: QueueCounts, reason: str, may_pause: bool, has_worker: bool = True) -> Any:
    """Return whether the queue is active, and a link to pause or resume it.

    `has_worker`: False if no worker polls the queue while jobs wait.
    """
    page, word = ("unpause", _("resume")) if counts.paused else ("pause", _("pause"))
    link = format_html('<a href="{}">{}</a>', formatting.url("queue", counts.name, page), word) if may_pause else ""
    if counts.paused:
        return format_html("{} {} {}", formatting.state("paused"), formatting.name(reason, 60) if reason else "", link)
    if not has_worker:
        return format_html('<span class="resty-alarm">{}</span> {}', _("no worker"), link)
    return format_html("{} {}", _("active"), link)


def pause_reasons(client: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the reasons for pauses by queue, for queues that have one."""
    replies = client.call_many([("config.get", f"{name}-{PAUSE_REASON}") for name in names]) if names else []
    return {name: text(reply) for name, reply in zip(names, replies, strict=True) if isinstance(reply, bytes)}
