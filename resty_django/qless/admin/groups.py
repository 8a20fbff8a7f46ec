"""Groups of jobs: the list, and the page of a group with its members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.lists import FigureTile
from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.admin.tables import (
    MAX_SORTED,
    PAGE_SIZE,
    Column,
    Row,
    SortOrder,
    Table,
    order_of,
    pager,
    sheet_of,
    sort,
    table,
)

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.job import Job
from ..clients.replies import Group
from ..models import JobGroup
from . import formatting
from .base import JobsAdmin
from .job_lists.export import jobs_sheet
from .job_lists.rows import COLUMNS as JOB_COLUMNS
from .job_lists.rows import gone_row, job_rows, table_of_jobs
from .jobs.callbacks import callbacks_table
from .redis_reads import fetch_jobs, paged

COLUMNS: Final = (
    Column("name", gettext_lazy("Group"), sorts=False),
    Column("id", gettext_lazy("ID"), sorts=False),
    Column("state", gettext_lazy("State"), sorts=False),
    Column("progress", gettext_lazy("Ended"), sorts=False),
    Column("failed", gettext_lazy("Failed"), number=True, sorts=False),
    Column("left", gettext_lazy("Left"), number=True, sorts=False),
    Column("created", gettext_lazy("Created"), time=True),
)
MAX_MEMBERS: Final = 10_000
"""Maximum number of members of a group that a request cancels or retries."""


def _retry(group: Group, data: dict[str, Any]) -> OperationResult:
    count = default_client().groups.retry(group.id)
    return OperationResult.of(lambda: _("Retried %(jobs)s of the group.") % {"jobs": formatting.job_count(count)})


def _cancel(group: Group, data: dict[str, Any]) -> OperationResult:
    count = default_client().groups.cancel(group.id)
    return OperationResult.of(lambda: _("Canceled %(jobs)s of the group.") % {"jobs": formatting.job_count(count)})


class JobGroupAdmin(JobsAdmin[JobGroup]):
    operations = (
        Operation(
            "retry",
            gettext_lazy("Retry the failed members"),
            "retry_job",
            _retry,
            gettext_lazy(
                "Failed members, and the jobs because of which members failed, return to their queues with all of "
                "their retries. This cannot be undone."
            ),
            explain=lambda group: {"facts": [(_("Failed members"), formatting.job_count(group.failed))]},
            partial=True,
        ),
        Operation(
            "cancel",
            gettext_lazy("Cancel all members"),
            "cancel_job",
            _cancel,
            gettext_lazy(
                "Deletes the members that have not ended, and earlier steps of chains that only they depend on, even "
                "if workers are running them. Jobs that wait for the group follow their policies. This cannot be "
                "undone."
            ),
            explain=lambda group: {"facts": [(_("Members that have not ended"), formatting.job_count(group.left))]},
            danger=True,
            partial=True,
        ),
    )
    missing = gettext_lazy("This group does not exist: it has expired, or never existed.")

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show groups, newest first. URL parameters: `o`, "created" for oldest first; `p`."""
        client = self.client()
        total = client.groups.list(0, 1).total

        def listed(start: int, count: int) -> list[Group]:
            return list(client.groups.list(start, count).groups)

        position, oldest_first = pager(request, total), order_of(request, COLUMNS) == SortOrder("created")
        start = position.start
        if oldest_first:  # the server lists the newest first
            start = total - position.start - position.count
        groups = listed(start, position.count) if position.count else []
        now = client.clock()
        groups_table = table(
            request,
            COLUMNS,
            [_row(group, now) for group in (reversed(groups) if oldest_first else groups)],
            caption=_("Job groups"),
            empty=_("No groups. Groups and chords of tasks appear here, and groups from client.groups.open()."),
            position=position,
            order=SortOrder("created", descending=not oldest_first),
            export=sheet_of("groups", COLUMNS, lambda: (_row(group, now) for group in paged(listed))),
        )
        summary = ngettext("%(count)s group", "%(count)s groups", total) % {"count": formatting.number(total)}
        return self.list_page(request, replace(groups_table, summary=summary))

    @object_page
    def change_view(self, request: HttpRequest, row: JobGroup) -> HttpResponse:
        """Show a group and its members; 404 if it does not exist."""
        client = self.client()
        group = client.groups.get(row.name)
        title = formatting.name(row.name)
        actions = [(formatting.url("jobgroup", row.name, "history"), _("History"), False)]
        if group is None:
            members = table_of_jobs(request, [], caption=_("Members"), empty=str(self.missing))
            page = self.list_page(request, members, title=title, object=row, on_object=True, actions=actions)
            page.status_code = 404
            return page
        if group.left and self.may(request, "cancel_job"):
            actions.insert(0, (formatting.url("jobgroup", row.name, "cancel"), _("Cancel all members"), True))
        if group.failed and self.may(request, "retry_job"):
            actions.insert(0, (formatting.url("jobgroup", row.name, "retry"), _("Retry the failed members"), False))
        callbacks = client.groups.callbacks(row.name)
        return self.list_page(
            request,
            _members_table(request, client, group),
            title=formatting.name(group.name) if group.name else title,
            object=row,
            on_object=True,
            tiles=_tiles(group),
            facts=_facts(group, client.clock()),
            extra_tables=[callbacks_table(request, client, callbacks)] if callbacks and callbacks.callbacks() else [],
            actions=actions,
        )

    def load(self, names: Sequence[str]) -> dict[str, Group]:
        groups = {name: group for name in names if (group := self.client().groups.get(name)) is not None}
        if any(group.total > MAX_MEMBERS for group in groups.values()):
            text = _("The group has more than %(most)s members. Use client.groups in code.")
            raise Refused(text % {"most": formatting.number(MAX_MEMBERS)})
        return groups


def progress_bar(group: Group) -> SafeString:
    """Return a bar with the share of members that have ended."""
    ended = group.total - group.left
    return format_html(
        '<progress max="{}" value="{}" aria-label="{}"></progress> {}',
        max(1, group.total),
        ended if group.total else int(group.state in ("complete", "failed")),
        _("Members that have ended"),
        _("%(ended)s of %(total)s") % {"ended": formatting.number(ended), "total": formatting.number(group.total)},
    )


def _row(group: Group, now: float) -> Row:
    return Row(
        {
            "name": formatting.link("jobgroup", group.id, formatting.name(group.name or group.id)),
            "id": formatting.group_link(group.id),
            "state": formatting.state(group.state),
            "progress": progress_bar(group),
            "failed": formatting.number(group.failed),
            "left": formatting.number(group.left),
            "created": formatting.relative_time(group.created_at, now),
        },
        {
            "name": group.name,
            "id": group.id,
            "state": group.state,
            "progress": group.total - group.left,
            "failed": group.failed,
            "left": group.left,
            "created": group.created_at,
        },
    )


def _tiles(group: Group) -> list[FigureTile]:
    return [
        FigureTile(_("Members"), formatting.number(group.total)),
        FigureTile(_("Left"), formatting.number(group.left)),
        FigureTile(_("Complete"), formatting.number(group.done)),
        FigureTile(_("Failed"), formatting.number(group.failed), alarm=group.failed > 0),
        FigureTile(_("Skipped"), formatting.number(group.skipped)),
        FigureTile(_("Canceled"), formatting.number(group.canceled)),
    ]


def _facts(group: Group, now: float) -> list[tuple[str, object]]:
    state_help = {
        "open": _("Members are still being added."),
        "running": _("Not all members have ended."),
        "complete": _("All members are complete or were skipped."),
        "failed": _("All members have ended. At least one of them has failed or was canceled."),
    }
    facts: list[tuple[str, object]] = [
        (_("ID"), formatting.name(group.id)),
        (_("State"), format_html("{} {}", formatting.state(group.state), state_help.get(group.state, ""))),
        (_("Ended"), progress_bar(group)),
        (_("Created"), formatting.relative_time(group.created_at, now)),
    ]
    if group.ended_at:
        facts.append((_("Time of the end"), formatting.relative_time(group.ended_at, now)))
    if group.reason:
        facts.append((_("Failed first"), formatting.job_link(group.reason)))
    if group.incomplete:
        facts.append((_("Incomplete"), _("Members may be missing, because the client did not finish adding them.")))
    return facts


def _members_table(request: HttpRequest, client: Client, group: Group) -> Table:
    """Return the members in the order in which they were put; a small group can be sorted by all columns."""
    position = pager(request, group.total)
    order = order_of(request, JOB_COLUMNS) if group.total <= MAX_SORTED else SortOrder()
    start, count = (0, group.total) if order else (position.start, position.count)
    members = client.groups.jobs(group.id, start, count) if count else []
    jobs, _gone = fetch_jobs(client, [jid for jid, _state in members])
    rows_by_jid = {row.values["job"]: row for row in job_rows(client, jobs, client.clock())}
    rows = [rows_by_jid.get(jid) or gone_row(jid) for jid, _state in members]
    if order:
        rows = list(position.rows_of(sort(rows, order)))
    members_table = table_of_jobs(
        request,
        rows,
        caption=_("Members"),
        empty=_("The group has no members."),
        position=position,
        sorts=None if group.total <= MAX_SORTED else (),
        export=jobs_sheet(client, lambda: _members(client, group)),
    )
    return replace(members_table, summary=formatting.job_count(group.total))


def _members(client: Client, group: Group) -> Iterator[Job]:
    """Yield the members of a group that exist."""
    for start in range(0, group.total, PAGE_SIZE):
        yield from fetch_jobs(client, [jid for jid, _state in client.groups.jobs(group.id, start, PAGE_SIZE)])[0]
