"""Tiles and pause state for the overview of queues."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.backends.utils import csrf_input
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ...facts import JobQueueFacts, QueueFacts
from .. import formatting
from ..base import TO_LIST
from ..redis_reads import redis_command


def tiles(client: Any, now: JobQueueFacts) -> list[dict[str, Any]]:
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


def delivery_cell(request: HttpRequest, queue: QueueFacts, may_pause: bool, has_worker: bool = True) -> Any:
    """Return whether the queue is active, with a link to pause it or a button that resumes it.

    `has_worker`: False if no worker polls the queue while jobs wait.
    """
    if queue.counts.paused:
        button = format_html(
            '<form method="post" action="{}">{}<button type="submit" class="button" aria-label="{}">{}</button></form>',
            formatting.url("queue", queue.name, "unpause", **{TO_LIST: 1}),
            csrf_input(request),
            f"{_('Resume')}: {formatting.name(queue.name)}",
            _("Resume"),
        )
        reason = formatting.name(queue.pause.reason, 60) if queue.pause and queue.pause.reason else ""
        return format_html("{} {} {}", formatting.state("paused"), reason, button if may_pause else "")
    status = _("active") if has_worker else format_html('<span class="resty-alarm">{}</span>', _("no worker"))
    link = format_html('<a href="{}">{}</a>', formatting.url("queue", queue.name, "pause"), _("pause"))
    return format_html("{} {}", status, link if may_pause else "")
