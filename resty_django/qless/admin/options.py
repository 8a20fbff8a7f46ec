"""The configuration: the options of the core with what they mean and may be, those of queues, and free ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.shown import printable

from ..models import Option, name_of
from ..texts import text
from . import shown
from .base import TEMPLATES, JobsAdmin, named
from .sources import plain
from .tables import Column, Row, table
from .words import DEEDS

FIXES: Final = (
    "advance-state",
    "advance-delay",
    "failed-stats",
    "retry-clean",
    "timeout-clean",
    "keep-text",
    "tag-counts",
    "cancel-unknown",
    "stats-expiry",
    "history-limit",
    "priority-order",
    "unfail-clean",
    "tracked-clean",
    "expired-keys",
    "pop-count",
    "recur-fraction",
    "spawn-jid",
    "cycles",
)


@dataclass(frozen=True, slots=True)
class Known:
    """An option of the core. `low` and `high` bound its number; `whole`: it has no fraction; a `check` is for texts."""

    default: str
    meaning: Any
    low: float | None = None
    high: float | None = None
    whole: bool = True
    check: Callable[[str], str | None] | None = None

    def problem(self, value: str) -> str | None:
        if self.check is not None:
            return self.check(value)
        if self.low is None:
            return None
        if not re.fullmatch(r"\d{1,15}" if self.whole else r"\d{1,15}(\.\d{1,6})?", value, re.ASCII):
            return _("This has to be a whole number.") if self.whole else _("This has to be a number.")
        if float(value) < self.low or (self.high is not None and float(value) > self.high):
            if self.high is None:
                return _("This has to be at least %(low)s.") % {"low": f"{self.low:g}"}
            return _("This has to be from %(low)s to %(high)s.") % {"low": f"{self.low:g}", "high": f"{self.high:g}"}
        return None


def _fixes(value: str) -> str | None:
    unknown = [word for word in value.split() if word not in (*FIXES, "all", "none")]
    return _("There is no %(word)s. Known are: %(known)s, all, none.") % {
        "word": printable(unknown[0], 40),
        "known": ", ".join(FIXES),
    } if unknown else None  # fmt: skip


KNOWN: Final[Mapping[str, Known]] = {
    "application": Known("qless", gettext_lazy("The title of the pages of other clients.")),
    "heartbeat": Known(
        "60", gettext_lazy("Seconds of a lock: a worker has to give a sign before."), 1, 8_640_000, False
    ),
    "grace-period": Known(
        "10",
        gettext_lazy("Seconds between the notice that a lock has expired and its loss; 0: none."),
        0,
        86_400,
        False,
    ),
    "jobs-history": Known("604800", gettext_lazy("Seconds after which complete jobs are deleted."), 0),
    "jobs-history-count": Known("50000", gettext_lazy("How many complete jobs are kept."), 0),
    "max-job-history": Known("100", gettext_lazy("Entries in the history of a job; 0: no bound."), 0, 100_000),
    "max-worker-age": Known("86400", gettext_lazy("Seconds after which a silent worker is forgotten."), 1),
    "stats-history": Known("30", gettext_lazy("Days that statistics are kept; 0: for ever."), 0, 36_500),
    "histogram-history": Known("7", gettext_lazy("Days that histograms are kept; 0: for ever."), 0, 36_500),
    "server-time": Known("off", gettext_lazy("With 1 the clock of the server counts, not that of the clients."), 0, 1),
    "max-payload": Known("0", gettext_lazy("The most bytes of arguments and results; 0: no bound."), 0),
    "fixes": Known("", gettext_lazy("Weaknesses of the original that are mended: names, all, or none."), check=_fixes),
}
OF_QUEUES: Final[Mapping[str, Known]] = {
    "-heartbeat": Known("", gettext_lazy("Seconds of a lock in this queue."), 1, 8_640_000, False),
    "-max-concurrency": Known("0", gettext_lazy("The most jobs of this queue that run at once; 0: no bound."), 0),
    "-pause-reason": Known("", gettext_lazy("Why this queue is paused.")),
}
FREE: Final = Known("", gettext_lazy("An option that the core does not know."))
COLUMNS: Final = (
    Column("option", gettext_lazy("Option")),
    Column("value", gettext_lazy("Value"), sorts=False),
    Column("default", gettext_lazy("Default"), sorts=False),
    Column("meaning", gettext_lazy("Meaning"), sorts=False),
)


def known(option: str) -> Known:
    if option in KNOWN:
        return KNOWN[option]
    return next((each for suffix, each in OF_QUEUES.items() if option.endswith(suffix) and option != suffix), FREE)


def _grouped(value: str) -> str:
    return f"{int(value):,}" if re.fullmatch(r"\d{1,15}", value, re.ASCII) else value


class OptionForm(forms.Form):
    value = forms.CharField(label=_("Value"), max_length=2000)

    def __init__(self, data: Any, option: str, value: str) -> None:
        super().__init__(data, initial={"value": value})
        self.option = option
        self.fields["value"].help_text = known(option).meaning

    def clean_value(self) -> str:
        value: str = self.cleaned_data["value"]
        problem = known(self.option).problem(value)
        if problem:
            raise ValidationError(problem)
        return value


class NewOptionForm(forms.Form):
    """Leads to the page of an option, where its value is set."""

    option = forms.CharField(label=gettext_lazy("Another option"), max_length=200)


class OptionAdmin(JobsAdmin[Option]):
    live = False

    def more_urls(self) -> list[URLPattern]:
        return [self.page_url("unset", self.unset_view)]

    def _set(self) -> dict[str, str]:
        return {text(key): text(value) for key, value in plain(self.client(), "HGETALL", "config").items()}

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """In the address `option`: one to set that is not listed."""
        self.look(request)
        asked = request.GET.get("option", "").strip()
        found = self._set()
        names = [*KNOWN, *sorted(key for key in found if key not in KNOWN)]
        if asked and asked not in names:
            names.append(asked)
        rows = [self._row(option, found.get(option)) for option in names]
        listed = table(request, COLUMNS, rows, caption=_("Options"), empty="")
        return self.page(  # type: ignore[no-any-return]
            request,
            f"{TEMPLATES}/list.html",
            {
                "title": _("Configuration"),
                "table": listed,
                "form": NewOptionForm(request.GET or None),
                "filter_button": _("List it"),
            },
        )

    def _row(self, option: str, value: str | None) -> Row:
        about = known(option)
        shown_value = (
            format_html("<strong>{}</strong>", _grouped(shown.name(value)))
            if value is not None
            else format_html('<span class="resty-quiet">{}</span>', _grouped(about.default) or _("not set"))
        )
        cells = {
            "option": shown.link("option", option),
            "value": shown_value,
            "default": _grouped(about.default) or shown.NONE,
            "meaning": about.meaning,
        }
        return Row(cells, {"option": option})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The value, for those who may change it a form."""
        self.look(request)
        option = name_of(named(object_id))
        value = self._set().get(option)
        about = known(option)
        facts = [
            (_("Value"), shown.name(value, 2000) if value is not None else _("not set")),
            (_("Default"), about.default or shown.NONE),
            (_("Meaning"), about.meaning),
        ]
        if value is not None and self.may(request, "configure_jobs"):
            unset = shown.url("option", option, "unset")
            facts.append((_("Back to the default"), format_html('<a href="{}">{}</a>', unset, _("Unset"))))
        if not self.may(request, "configure_jobs") and request.method in ("GET", "HEAD"):
            context = {"title": shown.name(option), "object": Option(key=named(object_id)), "facts": facts}
            return self.page(request, f"{TEMPLATES}/action.html", {**context, "back": shown.list_url("option")})  # type: ignore[no-any-return]

        def perform(request: HttpRequest, row: Option, given: dict[str, Any]) -> tuple[str, str]:
            self.client().config.set(row.name, given["value"])
            return _("The option is set, for all clients."), (
                f"Changed from {'its default' if value is None else printable(value, 200)} to "
                f"{printable(given['value'], 200)}."
            )

        return self.change(
            request,
            object_id,
            permission="configure_jobs",
            title=shown.name(option),
            button=_("Set"),
            form=lambda data, row: OptionForm(data, option, value if value and value.isprintable() else ""),
            perform=perform,
            explain=lambda row: {"facts": facts, "back": shown.list_url("option")},
        )

    def unset_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Option, given: dict[str, Any]) -> tuple[str, str]:
            before = self._set().get(row.name)
            self.client().config.unset(row.name)
            row.gone = True  # type: ignore[attr-defined]
            return _("The option has its default again."), f"Unset; it was {printable(str(before), 200)}."

        return self.change(
            request,
            object_id,
            permission="configure_jobs",
            title=_("Unset"),
            button=_("Unset the option"),
            perform=perform,
            explain=DEEDS["unset"][1],
        )


__all__ = ["FIXES", "KNOWN", "OF_QUEUES", "OptionAdmin", "known"]
