"""The admin of bans: the list, one ban, and the action that lifts bans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Self

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.bulk import BulkAdmin
from resty_django.admin.formatting import date_time, local_time, number
from resty_django.admin.operations import Operation, OperationResult
from resty_django.admin.statistics import KeyView, key_of, why
from resty_django.admin.tables import Listing, Row, changed, filter_form, listed_table, listing
from resty_django.shdict import SharedDictError
from resty_django.text import printable

from ..bans import registry
from ..bans.registry import MAX_REASON_CHARACTERS, Ban
from ..models import KeyBan
from . import columns

TEMPLATES: Final = "admin/resty_limits/keyban"
MAX_LISTED: Final = 500
"""The maximum number of bans on the page."""


@dataclass(frozen=True, slots=True)
class BanRow:
    """A ban as the pages show it. `token` identifies it in URLs; "" if its key is too long."""

    key: str
    token: str
    limit: str
    since: datetime
    until: datetime
    number: int
    reason: str
    ended: bool

    @classmethod
    def of(cls, ban: Ban) -> Self:
        return cls(
            key=KeyView.of(ban.key).text,
            token=KeyView.of(ban.name).token,
            limit=printable(ban.limit, columns.MAX_SHOWN_CHARACTERS) or _("all limits"),
            since=local_time(ban.since),
            until=local_time(ban.until),
            number=ban.number,
            reason=printable(ban.reason, MAX_REASON_CHARACTERS),
            ended=ban.until <= registry.now(),
        )


def _lift(ban: Ban, data: dict[str, Any]) -> OperationResult:
    registry.lift(ban.key, ban.limit)
    message = format_html(_('Lifted the ban of <code class="resty-id">{}</code>.'), KeyView.of(ban.key).text)
    return OperationResult(f"Lifted the ban by {BanRow.of(ban).limit}.", message)


class BanAdmin(BulkAdmin[KeyBan]):
    refusals: ClassVar = (SharedDictError,)
    missing = gettext_lazy("The key is no longer banned.")
    object_route = "<path:object_id>"
    operations = (
        Operation(
            "lift",
            gettext_lazy("Lift the ban"),
            "lift_keyban",
            _lift,
            gettext_lazy(
                "Requests with this key are allowed again, and its next ban is a first one. This cannot be undone."
            ),
            applies=lambda ban: ban.until > registry.now(),
            done=gettext_lazy("Lifted"),
        ),
    )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> KeyBan | None:
        """Return the ban that a token identifies, or None if it does not exist or cannot be read."""
        try:
            ban = registry.read(key_of(object_id) or "")
        except SharedDictError:
            return None
        return None if ban is None else self.row(ban.name, ban)

    def extra_urls(self) -> list[URLPattern]:
        return [self.page_url("lift_selected", self.bulk_view, "lift/"), *self.operation_urls()]

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show the bans in force. URL parameters: `find`, a text in key, limit or reason; `o`, the order."""
        error = ""
        bans: list[Ban] = []
        not_stored = 0
        try:
            bans, not_stored = registry.current_bans(), registry.count_not_stored()
        except Exception as fault:  # the page has to show any error
            error = why(fault)
        matching = _listing(request, bans)
        shown = min(len(matching), MAX_LISTED)
        table = listed_table(
            matching,
            self._table_row,
            caption=_("Bans"),
            export="bans",
            empty=_("No bans match. Change your search.") if matching.find else _("No bans."),
            most=MAX_LISTED,
            check_boxes=self.may(request, "lift_keyban"),
            note=_("%(shown)s of %(bans)s.") % {"shown": number(shown), "bans": self.count_text(len(bans))},
        )
        note = ngettext(
            "%(number)s ban was not stored, because the dictionary was full. Increase its SIZE.",
            "%(number)s bans were not stored, because the dictionary was full. Increase its SIZE.",
            not_stored,
        )
        return self.list_page(
            request,
            None if error else table,
            error=error,
            notes=[note % {"number": number(not_stored)}] if not_stored else [],
            filter=filter_form(request),
            filter_label=_("Key, limit or reason"),
            **self.bulk_context(request, shown, url=reverse(self.url_name("lift_selected")) + changed(request)),
        )

    def _table_row(self, ban: Ban) -> Row:
        row = BanRow.of(ban)
        key = format_html('<code class="resty-id">{}</code>', row.key)
        key = self.link(row.token, key) if row.token else key
        cells = {
            "key": key,
            "limit": row.limit,
            "since": date_time(row.since),
            "until": date_time(row.until),
            "number": number(row.number),
            "reason": row.reason,
        }
        return Row(cells, pick=row.token, title=row.key)

    @object_page
    def change_view(self, request: HttpRequest, obj: KeyBan) -> HttpResponse:
        """Show a ban."""
        ban = registry.read(self.name_of(obj.pk))
        if ban is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, obj.pk)
        context = {
            "title": str(obj),
            "object": obj,
            "row": BanRow.of(ban),
            "may_lift": self.may(request, "lift_keyban", obj),
        }
        return self.page(request, f"{TEMPLATES}/ban.html", context)

    # --- operations ---------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, Ban]:
        return {name: ban for name in names if (ban := registry.read(name)) is not None}

    def listed_names(self, request: HttpRequest) -> list[str]:
        return [ban.name for ban in _listing(request, registry.current_bans()).rows[:MAX_LISTED]]

    def count_text(self, count: int) -> str:
        return ngettext("%(count)s ban", "%(count)s bans", count) % {"count": number(count)}

    def name_of(self, pk: str) -> str:
        return key_of(pk) or ""

    def row(self, name: str, target: Ban | None) -> KeyBan:
        """Return a ban as an object of the admin; its primary key is the token."""
        row = KeyBan(name=KeyView.of(name).token)
        row.title = "" if target is None else KeyView.of(target.key).text
        return row

    def described(self, row: KeyBan, target: Ban) -> str:
        return f"{row} ({BanRow.of(target).limit})"


def _listing(request: HttpRequest, bans: Sequence[Ban]) -> Listing[Ban]:
    """Return the bans that match the filter in the URL, in its order."""
    return listing(request, columns.BAN_COLUMNS, bans, default="-since")
