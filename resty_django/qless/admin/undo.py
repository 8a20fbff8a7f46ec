"""Taking back what was done to jobs, from a signed token in the message that told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from resty_django.admin.shown import printable

from ..models import Job as JobRow
from . import shown, verbs
from .base import TEMPLATES, JobsAdmin

ERRORS_SHOWN: Final = 3


class UndoAdmin(JobsAdmin[JobRow]):
    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def undo_view(self, request: HttpRequest) -> HttpResponse:
        """Take back what the token `t` of the address tells."""
        self.look(request)
        wanted = verbs.undo_of(request.GET.get("t", ""), request.user)
        if not all(self.may(request, verbs.VERBS[verb].permission) for _jid, verb, _argument in wanted):
            raise PermissionDenied
        back = shown.list_url("job")
        if not wanted:
            self.say(request, _("This cannot be undone any more."), messages.WARNING)
            return HttpResponseRedirect(back)
        if request.method == "POST":
            outcome = verbs.take_back(self.client(), wanted)
            self.note(request, "Undone.", *(JobRow.called(job.jid) for job in outcome.done))
            self.tell(
                request,
                _("Undone for %(jobs)s.") % {"jobs": shown.jobs(len(outcome.done))},
                len(wanted) - len(outcome.done),
                outcome.errors,
            )
            return HttpResponseRedirect(shown.url("job", wanted[0][0]) if len(wanted) == 1 else back)
        facts = [
            (shown.job_link(jid), shown.name(f"{verbs.VERBS[verb].label} {argument}".strip()))
            for jid, verb, argument in wanted
        ]
        context = {"title": _("Undo"), "button": _("Undo"), "facts": facts, "back": back, "live": False}
        return self.page(request, f"{TEMPLATES}/action.html", context)  # type: ignore[no-any-return]

    def tell(self, request: HttpRequest, said: str, left: int, errors: Sequence[str], undo: str = "") -> None:
        parts = [said]
        if left:
            parts.append(_("Left as they are: %(count)s.") % {"count": shown.number(left)})
        parts += [printable(error, 300) for error in errors[:ERRORS_SHOWN]]
        self.say(request, said_with_undo(" ".join(parts), undo), messages.WARNING if errors else messages.SUCCESS)


def said_with_undo(said: str, undo: str) -> str:
    """A message with a door to what takes it back."""
    if not undo:
        return said
    address = f"{shown.list_url('job')}undo/?{urlencode({'t': undo})}"
    return format_html('{} <a href="{}">{}</a>', said, address, _("Undo"))


__all__ = ["ERRORS_SHOWN", "UndoAdmin", "said_with_undo"]
