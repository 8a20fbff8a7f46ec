"""Callbacks, policies and groups of a job, in words."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.tables import Column, Row, Table, order_of, table

from ...clients.client import Client
from ...clients.put_options import Callback, JobOutcome
from .. import formatting
from ..job_lists.rows import state_of
from ..redis_reads import fetch_jobs

COLUMNS: Final = (
    Column("end", gettext_lazy("Enqueued at")),
    Column("klass", gettext_lazy("Class")),
    Column("queue", gettext_lazy("Queue")),
    Column("job", gettext_lazy("Job")),
    Column("state", gettext_lazy("State")),
)
MAX_LISTED: Final = 50
"""Maximum number of callbacks, of groups and of policies on a page."""


def callbacks_table(request: HttpRequest, client: Client, outcome: JobOutcome) -> Table:
    """Return the callbacks of a job or a group, with links to those that were enqueued."""
    callbacks = outcome.callbacks()[:MAX_LISTED]
    jobs = {job.jid: job for job in fetch_jobs(client, [callback.jid for _end, callback in callbacks])[0]}
    now = client.clock()
    ends = {"success": _("success"), "failure": _("failure"), "complete": _("any end")}

    def row(end: str, callback: Callback) -> Row:
        job = jobs.get(callback.jid)
        return Row(
            {
                "end": ends[end],
                "klass": formatting.name(callback.klass),
                "queue": formatting.link("queue", callback.queue),
                "job": formatting.name(callback.jid) if job is None else formatting.job_link(job.jid),
                "state": _("not enqueued yet") if job is None else formatting.state(state_of(job, now)),
            },
            {
                "end": ends[end],
                "klass": callback.klass,
                "queue": callback.queue,
                "job": callback.jid,
                "state": "" if job is None else state_of(job, now),
            },
        )

    return table(
        request,
        COLUMNS,
        [row(end, callback) for end, callback in callbacks],
        caption=_("Callbacks"),
        empty=_("No callbacks."),
        order=order_of(request, COLUMNS, "o-callbacks"),
    )


def outcome_facts(outcome: JobOutcome) -> list[tuple[str, object]]:
    """Return the groups and policies of a job, and because of which job it failed."""
    facts: list[tuple[str, object]] = []
    if outcome.blocked:
        facts.append((_("Failed because of"), formatting.job_link(outcome.blocked)))
    if outcome.groups:
        links = ((formatting.group_link(group_id),) for group_id in outcome.groups[:MAX_LISTED])
        facts.append((_("Groups"), format_html_join(", ", "{}", links)))
    if outcome.policy != "wait":
        facts.append((_("If a dependency fails"), _policy(outcome.policy)))
    for jid, policy in list(outcome.policies.items())[:MAX_LISTED]:
        facts.append((_("If one dependency fails"), format_html("{}: {}", formatting.job_link(jid), _policy(policy))))
    return facts


def _policy(policy: str) -> str:
    texts = {
        "fail": _("fails, too"),
        "skip": _("is skipped"),
        "release": _("runs anyway"),
        "wait": _("waits until that job is retried"),
    }
    return format_html("{} {}", _("this job"), texts.get(policy, policy))
