"""The admin of bans: the list, one ban, and the action that lifts bans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Self

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_safe

from resty_django.admin.base import ReadOnlyAdmin
from resty_django.admin.formatting import local_time, number
from resty_django.admin.statistics import Key, key_of, why
from resty_django.admin.tables import Listing, changed, filter_form, listing
from resty_django.shdict import NotFound, SharedDictError
from resty_django.text import printable

from ..bans import registry
from ..bans.registry import LONGEST_REASON, Ban
from ..models import KeyBan
from . import columns

TEMPLATES: Final = "admin/resty_limits/keyban"
MAX_LISTED: Final = 500
"""The maximum number of bans on the page."""
LONGEST_TEXT: Final = 200
MAX_NAMED: Final = 25
"""The maximum number of bans that a confirmation names."""
MAX_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class Row:
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
            key=Key.of(ban.key).text,
            token=Key.of(ban.name).token,
            limit=printable(ban.limit, LONGEST_TEXT) or _("all limits"),
            since=local_time(ban.since),
            until=local_time(ban.until),
            number=ban.number,
            reason=printable(ban.reason, LONGEST_REASON),
            ended=ban.until <= registry.now(),
        )


class BanAdmin(ReadOnlyAdmin[KeyBan]):
    refusals: ClassVar = (SharedDictError,)
    object_route = "<path:object_id>"

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> KeyBan | None:
        """Return the ban that a token identifies, or None if it does not exist or cannot be read."""
        try:
            ban = registry.read(key_of(object_id) or "")
        except SharedDictError:
            return None
        return None if ban is None else _model(ban)

    def get_urls(self) -> list[URLPattern]:
        return [
            self.page_url("changelist", self.changelist_view, ""),
            self.page_url("lift_selected", self.lift_selected_view, "lift/"),
            self.page_url("lift", self.lift_view),
            self.page_url("history", self.history_view),
            self.page_url("change", self.change_view),
        ]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the bans in force. URL parameters: `find`, a text in key, limit or reason; `o`, the order."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        error = ""
        bans: list[Ban] = []
        not_stored = 0
        try:
            bans, not_stored = registry.current_bans(), registry.count_not_stored()
        except Exception as fault:  # the page has to show any error
            error = why(fault)
        matching = _listing(request, bans)
        context = {
            "title": _("Bans"),
            "rows": [Row.of(ban) for ban in matching.rows[:MAX_LISTED]],
            "listing": matching,
            "total": len(bans),
            "filter": filter_form(request),
            "error": error,
            "not_stored": not_stored,
            "may_lift": self.may(request, "lift_keyban"),
            "query": changed(request),
            "exports": [matching.sheet("bans")],
        }
        return self.page(request, f"{TEMPLATES}/list.html", context)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a ban."""
        token = unquote(object_id)
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        obj = self.get_object(request, token)
        ban = None if obj is None else registry.read(key_of(token) or "")
        if obj is None or ban is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, token)
        context = {
            "title": str(obj),
            "object": obj,
            "row": Row.of(ban),
            "may_lift": self.may(request, "lift_keyban", obj),
        }
        return self.page(request, f"{TEMPLATES}/ban.html", context)

    def lift_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.action_view(
            request,
            object_id,
            permission="lift_keyban",
            form=lambda data, obj: forms.Form(data),
            title=_("Lift the ban"),
            button=_("Lift the ban"),
            perform=self._lift,
            explain=lambda obj: {"row": {"key": str(obj)}},
            template=f"{TEMPLATES}/lift.html",
        )

    def _lift(self, request: HttpRequest, obj: KeyBan, cleaned_data: dict[str, Any]) -> str:
        ban = registry.read(key_of(obj.pk) or "")
        if ban is None:
            raise NotFound(_("The key “%(key)s” is no longer banned.") % {"key": obj})
        self._lift_and_log(request, ban)
        return format_html(_('Lifted the ban of <code class="resty-id">{}</code>.'), str(obj))

    def _lift_and_log(self, request: HttpRequest, ban: Ban) -> None:
        registry.lift(ban.key, ban.limit)
        self.add_history(request, f"Lifted the ban by {Row.of(ban).limit}.", _model(ban))

    # --- several bans -------------------------------------------------------------------------------------------------

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def lift_selected_view(self, request: HttpRequest) -> HttpResponse:
        """Lift several bans, after a confirmation.

        Form fields: `pick` (tokens), or `all` for those that the list shows with these URL parameters, and `confirmed`.
        """
        if not self.may(request, "lift_keyban"):
            raise PermissionDenied
        list_address = reverse(self.url_name("changelist"))
        try:
            bans = self._selected(request) if request.method == "POST" else []
        except SharedDictError as error:
            self.message_user(request, format_html(_("Not done: {}"), str(error)), messages.ERROR)
            return HttpResponseRedirect(list_address)
        if not bans:
            if request.method == "POST":
                self.message_user(request, _("Nothing selected. Select bans that are in force."), messages.WARNING)
            return HttpResponseRedirect(list_address)
        if "confirmed" in request.POST:
            self._lift_all(request, bans)
            return HttpResponseRedirect(list_address)
        count = ngettext("%(count)s ban", "%(count)s bans", len(bans)) % {"count": number(len(bans))}
        field = "all" if "all" in request.POST else "pick"
        selection = [(field, value) for value in request.POST.getlist(field)]
        context = {
            "title": _("Lift bans"),
            "button": _("Lift %(bans)s") % {"bans": count},
            "form": forms.Form(),
            "object": None,
            "bans": [Row.of(ban) for ban in bans[:MAX_NAMED]],
            "more": max(0, len(bans) - MAX_NAMED),
            "hidden": [("confirmed", "yes"), *selection],
            "back": list_address,
        }
        return self.page(request, f"{TEMPLATES}/lift.html", context)

    def _selected(self, request: HttpRequest) -> list[Ban]:
        """Return the bans in force that the form selects. Raise `SharedDictError`."""
        if "all" in request.POST:
            return list(_listing(request, registry.current_bans()).rows[:MAX_LISTED])
        names = dict.fromkeys(key_of(token) for token in request.POST.getlist("pick")[:MAX_LISTED])
        stored = (registry.read(name) for name in names)
        return [ban for ban in stored if ban is not None and ban.until > registry.now()]

    def _lift_all(self, request: HttpRequest, bans: Sequence[Ban]) -> None:
        lifted, errors = 0, list[str]()
        for ban in bans:
            try:
                self._lift_and_log(request, ban)
            except SharedDictError as error:
                errors.append(printable(str(error), LONGEST_TEXT))
                continue
            lifted += 1
        text = ngettext("Lifted %(count)s ban.", "Lifted %(count)s bans.", lifted) % {"count": number(lifted)}
        message = " ".join([text, *errors[:MAX_ERRORS]])
        self.message_user(request, message, messages.WARNING if errors else messages.SUCCESS)


def _listing(request: HttpRequest, bans: Sequence[Ban]) -> Listing[Ban]:
    """Return the bans that match the filter in the URL, in its order."""
    return listing(request, columns.BANS, bans, default="-since")


def _model(ban: Ban) -> KeyBan:
    """Return a ban as an object of the admin; its primary key is the token."""
    obj = KeyBan(name=Key.of(ban.name).token)
    obj.title = Key.of(ban.key).text
    return obj
