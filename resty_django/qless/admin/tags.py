"""The list of tags."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.tables import (
    MAX_SORTED,
    Column,
    Pager,
    Row,
    SortOrder,
    filter_of,
    order_of,
    pager,
    sheet_of,
    table,
)

from ..clients.client import Client
from ..models import Tag, token
from . import formatting
from .base import JobsAdmin
from .forms import NameForm
from .redis_reads import paged, redis_command

COLUMNS: Final = (Column("name", gettext_lazy("Tag")), Column("count", gettext_lazy("Jobs"), number=True))


def _tag_rows(client: Client, start: int, count_wanted: int) -> list[Row]:
    """Return a part of the list of tags, the most used first."""
    tags = [str(tag) for tag in client.tags(start, count_wanted)]
    return [
        Row({"name": formatting.tag_links([tag]), "count": formatting.number(total)}, {"name": tag, "count": total})
        for tag, total in ((tag, client.jobs.tagged(tag, 0, 1).total) for tag in tags)
    ]


def _contains(row: Row, text: str) -> bool:
    """Return whether a tag contains a text in lower case."""
    return text in row.values["name"].casefold()


class TagAdmin(JobsAdmin[Tag]):
    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """List tags, the most used first. URL parameters: `name`, a text in the tag; `o`; `p`."""
        client = self.client()
        tag_rows = partial(_tag_rows, client)
        total = redis_command(client, "ZCOUNT", "tags", 2, "+inf")
        order, text = order_of(request, COLUMNS), filter_of(request, "name").casefold()
        sorts_all = bool(text) or (total <= MAX_SORTED and bool(order))
        position: Pager | None = None
        if sorts_all:
            rows = [row for row in tag_rows(0, MAX_SORTED) if _contains(row, text)]
        else:
            position = pager(request, total)
            fewest_first = order == SortOrder("count")
            start = total - position.start - position.count if fewest_first else position.start
            rows = tag_rows(start, position.count)
            rows = rows[::-1] if fewest_first else rows
        tags_table = table(
            request,
            COLUMNS,
            rows,
            caption=_("Tags"),
            empty=_("No matching tags. Remove the filter.")
            if text
            else _("No tag is used by two jobs. Add tags when you enqueue a job or on its page."),
            position=position,
            sorts=None if sorts_all or total <= MAX_SORTED else ("count",),
            order=order if order and (sorts_all or order.key == "count") else SortOrder("count", descending=True),
            export=sheet_of("tags", COLUMNS, lambda: (row for row in paged(tag_rows) if _contains(row, text))),
        )
        summary = ngettext("%(count)s tag", "%(count)s tags", total) % {"count": formatting.number(total)}
        limit = _("The filter searches the %(count)s most used tags.") % {"count": formatting.number(MAX_SORTED)}
        tags_table = replace(tags_table, summary=summary, order=limit if text and total > MAX_SORTED else "")
        return self.list_page(request, tags_table, form=NameForm(request.GET))

    @object_page
    def change_view(self, request: HttpRequest, row: Tag) -> HttpResponse:
        """Redirect to the jobs with this tag."""
        return HttpResponseRedirect(formatting.list_url("job", tag=token(row.name)))
