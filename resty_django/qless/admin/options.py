"""Configuration pages: the core's options with meaning and bounds, options of queues, and custom options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.formatting import NONE
from resty_django.text import printable

from ..clients.serialization import text
from ..models import Option, name_of
from . import formatting
from .base import TEMPLATES, ActionContext, JobsAdmin
from .forms import SeenForm
from .glossary import OPERATION_HELP
from .job_lists import redis_command
from .tables import Column, Row, table

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
"""Single fixes of the core's option `fixes`, in the order of docs/qless/core.md."""

FIX_PROFILES: Final = ("shared", "all")
"""Sets of fixes: `shared` where clients with another core use the same data, which is the default, `all` elsewhere."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """An option of the core.

    `low` and `high` bound a number; `integer`: it has no fraction. `check` validates a text: it returns the problem.
    """

    default: str
    meaning: Any
    low: float | None = None
    high: float | None = None
    integer: bool = True
    check: Callable[[str], str | None] | None = None

    def problem(self, value: str) -> str | None:
        if self.check is not None:
            return self.check(value)
        if self.low is None:
            return None
        if not re.fullmatch(r"\d{1,15}" if self.integer else r"\d{1,15}(\.\d{1,6})?", value, re.ASCII):
            return _("This has to be a whole number.") if self.integer else _("This has to be a number.")
        if float(value) < self.low or (self.high is not None and float(value) > self.high):
            if self.high is None:
                return _("This has to be at least %(low)s.") % {"low": f"{self.low:g}"}
            return _("This has to be from %(low)s to %(high)s.") % {"low": f"{self.low:g}", "high": f"{self.high:g}"}
        return None


def _check_fixes(value: str) -> str | None:
    names = value.split()
    if "shared" in names and value != "shared":
        return _("The profile shared cannot be combined with other names. Give shared alone, or names of single fixes.")
    unknown = [name for name in names if name not in (*FIXES, *FIX_PROFILES, "none")]
    return _("There is no %(word)s. Known are: %(profiles)s, none, and the single fixes %(known)s.") % {
        "word": printable(unknown[0], 40),
        "profiles": ", ".join(FIX_PROFILES),
        "known": ", ".join(FIXES),
    } if unknown else None  # fmt: skip


CORE_OPTIONS: Final[Mapping[str, OptionSpec]] = {
    "application": OptionSpec("qless", gettext_lazy("The title of the pages of other clients.")),
    "heartbeat": OptionSpec(
        "60", gettext_lazy("Seconds of a lock: a worker has to give a sign before."), 1, 8_640_000, False
    ),
    "grace-period": OptionSpec(
        "10",
        gettext_lazy("Seconds between the notice that a lock has expired and its loss; 0: none."),
        0,
        86_400,
        False,
    ),
    "jobs-history": OptionSpec("604800", gettext_lazy("Seconds after which complete jobs are deleted."), 0),
    "jobs-history-count": OptionSpec("50000", gettext_lazy("How many complete jobs are kept."), 0),
    "max-job-history": OptionSpec("100", gettext_lazy("Entries in the history of a job; 0: no bound."), 0, 100_000),
    "max-worker-age": OptionSpec("86400", gettext_lazy("Seconds after which a silent worker is forgotten."), 1),
    "stats-history": OptionSpec("30", gettext_lazy("Days that statistics are kept; 0: for ever."), 0, 36_500),
    "histogram-history": OptionSpec("7", gettext_lazy("Days that histograms are kept; 0: for ever."), 0, 36_500),
    "server-time": OptionSpec(
        "off", gettext_lazy("With 1 the clock of the server counts, not that of the clients."), 0, 1
    ),
    "max-payload": OptionSpec("0", gettext_lazy("The most bytes of arguments and results; 0: no bound."), 0),
    "fixes": OptionSpec(
        "shared",
        gettext_lazy(
            "Which weaknesses of qless-core are mended. shared: those that no client with another core, in Ruby, "
            "Python or Lua, can depend on. all: all of them; only for data that no such client uses. none, or names "
            "of single fixes with blanks between, are for special cases."
        ),
        check=_check_fixes,
    ),
}
QUEUE_OPTIONS: Final[Mapping[str, OptionSpec]] = {
    "-heartbeat": OptionSpec("", gettext_lazy("Seconds of a lock in this queue."), 1, 8_640_000, False),
    "-max-concurrency": OptionSpec("0", gettext_lazy("The most jobs of this queue that run at once; 0: no bound."), 0),
    "-pause-reason": OptionSpec("", gettext_lazy("Why this queue is paused.")),
}
CUSTOM_OPTION: Final = OptionSpec("", gettext_lazy("An option that the core does not know."))
COLUMNS: Final = (
    Column("option", gettext_lazy("Option")),
    Column("value", gettext_lazy("Value"), sorts=False),
    Column("default", gettext_lazy("Default"), sorts=False),
    Column("meaning", gettext_lazy("Meaning"), sorts=False),
)


def option_spec(option: str) -> OptionSpec:
    if option in CORE_OPTIONS:
        return CORE_OPTIONS[option]
    return next(
        (spec for suffix, spec in QUEUE_OPTIONS.items() if option.endswith(suffix) and option != suffix), CUSTOM_OPTION
    )


def _grouped(value: str) -> str:
    return f"{int(value):,}" if re.fullmatch(r"\d{1,15}", value, re.ASCII) else value


class OptionForm(SeenForm):
    value = forms.CharField(label=_("Value"), max_length=2000)

    def __init__(self, data: Any, option: str, value: str) -> None:
        super().__init__(data, {"value": value})
        self.option = option
        self.fields["value"].help_text = option_spec(option).meaning

    def clean_value(self) -> str:
        value: str = self.cleaned_data["value"]
        problem = option_spec(self.option).problem(value)
        if problem:
            raise ValidationError(problem)
        return value


class NewOptionForm(forms.Form):
    """Form that leads to the page of an option, where its value is set."""

    option = forms.CharField(label=gettext_lazy("Another option"), max_length=200)


class OptionAdmin(JobsAdmin[Option]):
    live = False

    def extra_urls(self) -> list[URLPattern]:
        return [self.page_url("unset", self.unset_view)]

    def _stored(self) -> dict[str, str]:
        return {text(key): text(value) for key, value in redis_command(self.client(), "HGETALL", "config").items()}

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """List the options. URL parameter `option`: an unlisted option to add to the list."""
        self.check_view_permission(request)
        requested = request.GET.get("option", "").strip()
        stored = self._stored()
        names = [*CORE_OPTIONS, *sorted(key for key in stored if key not in CORE_OPTIONS)]
        if requested and requested not in names:
            names.append(requested)
        rows = [self._row(option, stored.get(option)) for option in names]
        options_table = table(request, COLUMNS, rows, caption=_("Options"), empty="")
        return self.list_page(
            request,
            options_table,
            title=_("Configuration"),
            form=NewOptionForm(request.GET or None),
            filter_button=_("List it"),
        )

    def _row(self, option: str, value: str | None) -> Row:
        spec = option_spec(option)
        value_cell = (
            format_html("<strong>{}</strong>", _grouped(formatting.name(value)))
            if value is not None
            else format_html('<span class="resty-quiet">{}</span>', _grouped(spec.default) or _("not set"))
        )
        cells = {
            "option": formatting.link("option", option),
            "value": value_cell,
            "default": _grouped(spec.default) or NONE,
            "meaning": spec.meaning,
        }
        return Row(cells, {"option": option})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show an option; users with the permission `configure_jobs` get a form."""
        self.check_view_permission(request)
        option = name_of(unquote(object_id))
        value = self._stored().get(option)
        spec = option_spec(option)
        facts = [
            (_("Value"), formatting.name(value, 2000) if value is not None else _("not set")),
            (_("Default"), spec.default or NONE),
            (_("Meaning"), spec.meaning),
        ]
        if value is not None and self.may(request, "configure_jobs"):
            unset = formatting.url("option", option, "unset")
            facts.append((_("Back to the default"), format_html('<a href="{}">{}</a>', unset, _("Unset"))))
        if not self.may(request, "configure_jobs") and request.method in ("GET", "HEAD"):
            context: ActionContext = {
                "title": formatting.name(option),
                "object": Option(key=unquote(object_id)),
                "facts": facts,
                "back": formatting.list_url("option"),
            }
            return self.page(request, f"{TEMPLATES}/action.html", context)

        def perform(request: HttpRequest, row: Option, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            self.client().config.set(row.name, cleaned_data["value"])
            return _("The option is set, for all clients."), (
                f"Changed from {'its default' if value is None else printable(value, 200)} to "
                f"{printable(cleaned_data['value'], 200)}."
            )

        return self.operation_view(
            request,
            object_id,
            permission="configure_jobs",
            title=formatting.name(option),
            button=_("Set"),
            form=lambda data, row: OptionForm(data, option, value if value and value.isprintable() else ""),
            perform=perform,
            explain=lambda row: {"facts": facts, "back": formatting.list_url("option")},
        )

    def unset_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Option, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            old_value = self._stored().get(row.name)
            self.client().config.unset(row.name)
            row.gone = True  # type: ignore[attr-defined]
            return _("The option has its default again."), f"Unset; it was {printable(str(old_value), 200)}."

        return self.operation_view(
            request,
            object_id,
            permission="configure_jobs",
            title=_("Unset"),
            button=_("Unset the option"),
            perform=perform,
            explain=OPERATION_HELP["unset"][1],
        )
