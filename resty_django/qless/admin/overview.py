"""Tiles, failure groups, throughput and pause state for the overview of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext as _

from resty_django.admin.tables import Column, Row, Table, table

from ..clients.queue import PAUSE_REASON
from ..clients.replies import QueueCounts, WorkerLife
from ..clients.serialization import text
from . import formatting
from .job_lists import redis_command

WORST: Final = 10
"""Maximum number of failure groups shown."""


def tiles(
    client: Any,
    counts: Sequence[QueueCounts],
    groups: dict[str, int],
    workers: Sequence[Any],
    lives: Sequence[WorkerLife] = (),
    ages: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Return tiles: jobs by state, failures, tracked jobs, workers that are not silent or gone, and the latency.

    `ages`: the age of the oldest runnable job by queue, in seconds; queues that are paused do not count.
    """
    open_queues = {queue.name for queue in counts if not queue.paused}
    latency = max((age for name, age in (ages or {}).items() if name in open_queues), default=None)
    states = {queue.name: queue.state for queue in lives}
    alive = sum(states.get(queue.name, "alive") == "alive" for queue in workers)
    failed = sum(groups.values())
    stalled = sum(queue.stalled for queue in counts)
    return [
        *(
            {
                "label": formatting.state_title(state),
                "value": formatting.number(sum(getattr(queue, state) for queue in counts)),
                "url": formatting.list_url("job", state=state),
                "alarm": state == "stalled" and stalled,
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
            "value": formatting.number(alive),
            "url": formatting.list_url("worker"),
            "alarm": not alive and any(queue.waiting for queue in counts),
        },
        {"label": _("Latency"), "value": formatting.age(latency)},
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
