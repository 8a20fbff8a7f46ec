"""The table of a list of jobs: numbered pages of an exact list, or the results of a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from resty_django.admin.tables import (
    MAX_SORTED,
    PAGE_SIZE,
    Pager,
    SortOrder,
    Table,
    changed,
    number_of,
    order_of,
    pager,
    sort,
)

from .. import formatting
from .export import jobs_of, jobs_sheet
from .lists import JobList
from .rows import COLUMNS, gone_row, job_rows, table_of_jobs
from .sources import FirstJobs, ListOrder

DEFAULT_ORDER: Final = "default"
"""The value of `o` for the list's own order; "-default" reverses it."""


def job_list_table(request: HttpRequest, job_list: JobList, *, caption: str, empty: str) -> Table:
    """Return the table of a list with its export: numbered pages if the list is exact, else a search with a cursor.

    `caption`, `empty`: as in `tables.table`.
    """
    make_table = _paged_table if job_list.exact else _search_table
    table = make_table(request, job_list, job_list.client.clock(), caption, empty)
    return replace(table, export=jobs_sheet(job_list.client, lambda: jobs_of(job_list)))


def _search_table(request: HttpRequest, job_list: JobList, now: float, caption: str, empty: str) -> Table:
    page = job_list.scan(request.GET.get("cursor", ""))
    note, next_url = "", ""
    matched = number_of(request, "matched") + len(page.jobs)
    if page.cursor:
        examined = number_of(request, "examined") + page.scanned
        next_url = changed(request, cursor=page.cursor, examined=examined, matched=matched)
        note = _examined(examined, page.candidates)
        if not page.jobs:
            empty = _("No matches so far. Continue with the next page.")
    rows = job_rows(job_list.client, page.jobs, now, page.fragments)
    position = Pager(next=next_url, note=note)
    jobs = table_of_jobs(request, rows, caption=caption, empty=empty, check_boxes=True, position=position, sorts=())
    summary = formatting.job_count(matched)
    return replace(jobs, summary=_("More than %(jobs)s") % {"jobs": summary} if page.cursor and matched else summary)


def _examined(examined: int, candidates: int | None) -> str:
    """Return the progress of a search."""
    if candidates is None or candidates < examined:
        return _("Examined {}.").format(formatting.job_count(examined))
    return _("Examined {examined} of about {jobs}.").format(
        examined=formatting.number(examined), jobs=formatting.job_count(candidates)
    )


def _paged_table(request: HttpRequest, job_list: JobList, now: float, caption: str, empty: str) -> Table:
    """Return a page of a list in the order in the URL: by a column, or the server's order or its reverse."""
    total = job_list.total()
    summary, by_column = formatting.job_count(total), order_of(request, COLUMNS)
    if by_column and total <= MAX_SORTED:
        rows = sort(job_rows(job_list.client, job_list.all_jobs(total), now), by_column)
        position = pager(request, len(rows))
        page_rows = position.rows_of(rows)
        jobs = table_of_jobs(request, page_rows, caption=caption, empty=empty, check_boxes=True, position=position)
        default = [(changed(request, o=None, p=None), _("Default order"))]
        return replace(jobs, summary=summary, order_links=default)
    order = _ServerOrder.of(request, job_list, total)
    position = pager(request, order.listed)
    count = min(PAGE_SIZE, order.listed - position.start)
    page = job_list.page(position.start, count, reverse=order.reverse, first=order.first is not None)
    jobs = table_of_jobs(
        request,
        [*job_rows(job_list.client, page.jobs, now), *(gone_row(jid) for jid in page.gone)],
        caption=caption,
        empty=empty,
        check_boxes=True,
        position=position,
        sorts=None if total <= MAX_SORTED else job_list.order_columns,
        order=order.sort_order,
    )
    links = order.links(request) if total > 1 else ()
    return replace(jobs, summary=summary, order=order.text(by_column.key), order_links=links)


@dataclass(frozen=True, slots=True)
class _ServerOrder:
    """The order that the URL chooses among those that the server keeps for a list of `total` jobs.

    `first`: the list's first jobs, if the order is theirs; None for the order of the whole list.
    """

    job_list: JobList
    total: int
    first: FirstJobs | None
    reverse: bool

    @classmethod
    def of(cls, request: HttpRequest, job_list: JobList, total: int) -> _ServerOrder:
        requested = request.GET.get("o", "")
        key, descending = requested.removeprefix("-"), requested.startswith("-")
        first = None if key and key == job_list.order.column else job_list.first_jobs
        order = first.order if first else job_list.order
        reverse = descending and key == DEFAULT_ORDER
        if key and key == order.column:
            reverse = descending != order.descending
        return cls(job_list, total, first, reverse)

    @property
    def order(self) -> ListOrder:
        return self.first.order if self.first else self.job_list.order

    @property
    def sort_order(self) -> SortOrder:
        return SortOrder(self.order.column, self.order.descending != self.reverse)

    @property
    def listed(self) -> int:
        """The number of jobs in this order."""
        return min(self.total, self.first.most) if self.first else self.total

    def text(self, requested: str) -> str:
        """Return the order in words. `requested`: the column that the URL names."""
        text = _("%(order)s.") % {"order": self.order.reversed_text if self.reverse else self.order.text}
        if self.listed < self.total:
            limit = _("Only the first %(jobs)s are listed in this order.")
            text += " " + limit % {"jobs": formatting.job_count(self.listed)}
        if requested and requested != self.order.column:
            limit = _("A list of more than %(jobs)s cannot be sorted by this column.")
            text += " " + limit % {"jobs": formatting.job_count(MAX_SORTED)}
        return text

    def links(self, request: HttpRequest) -> list[tuple[str, str | Promise]]:
        """Return links to the reverse order, and to the other order of the list."""
        column, descending = self.order.column or DEFAULT_ORDER, self.reverse
        if self.order.column:
            descending = self.sort_order.descending
        reverse_url = changed(request, o=column if descending else f"-{column}", p=None)
        links: list[tuple[str, str | Promise]] = [(reverse_url, _("Reverse"))]
        if self.first and self.listed < self.total:
            links.append((changed(request, o=self.job_list.order.column, p=None), self.first.all_text))
        return links
