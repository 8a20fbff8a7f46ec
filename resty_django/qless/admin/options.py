"""Configuration pages: the core's options with meaning and bounds, options of queues, and custom options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

import resty_django
from resty_django.admin.base import viewer_page
from resty_django.admin.formatting import NONE
from resty_django.admin.operations import Operation, OperationResult, changed_text
from resty_django.admin.tables import Column, Row, table
from resty_django.conf import conf
from resty_django.redis.errors import StoreDown, StoreError
from resty_django.text import printable

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.serialization import text
from ..core import sha1
from ..models import Option, name_of, token
from ..tasks.schedule import CRON_PAUSED
from . import formatting
from .base import JobsAdmin
from .forms import NameForm, PriorityField, SeenForm
from .redis_reads import redis_command


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """An option of the core.

    `low` and `high` bound a number; `integer`: whole numbers only. `choices`: the only values of a text.
    """

    default: str
    meaning: str | Promise
    low: int | None = None
    high: int | None = None
    integer: bool = True
    choices: tuple[str, ...] = ()

    def field(self, value: str) -> forms.Field:
        """Return the form field for the option, whose present value is `value`."""
        described: dict[str, Any] = {"label": _("Value"), "help_text": self.meaning}
        if self.choices:
            choices = self.choices if value in self.choices else ("", *self.choices)
            return forms.ChoiceField(choices=[(choice, choice) for choice in choices], **described)
        if self.low is None:
            return forms.CharField(max_length=2000, **described)
        number = forms.IntegerField if self.integer else PriorityField
        return number(min_value=self.low, max_value=self.high or 10**15, **described)


CORE_OPTIONS: Final[Mapping[str, OptionSpec]] = {
    "application": OptionSpec("qless", gettext_lazy("Title of other clients' web pages.")),
    "heartbeat": OptionSpec(
        "60", gettext_lazy("Duration of a job's lock in seconds. Workers extend it."), 1, 8_640_000, False
    ),
    "grace-period": OptionSpec(
        "10",
        gettext_lazy("Seconds between the warning that a lock has expired and its loss; 0: no warning."),
        0,
        86_400,
        False,
    ),
    "jobs-history": OptionSpec("604800", gettext_lazy("Seconds after which complete jobs are deleted."), 0),
    "jobs-history-count": OptionSpec("50000", gettext_lazy("Number of complete jobs to keep."), 0),
    "max-job-history": OptionSpec("100", gettext_lazy("Maximum entries in a job's history; 0: unlimited."), 0, 100_000),
    "max-worker-age": OptionSpec("86400", gettext_lazy("Seconds after which a silent worker leaves the list."), 1),
    "stats-history": OptionSpec("30", gettext_lazy("Days for which statistics are kept; 0: forever."), 0, 36_500),
    "histogram-history": OptionSpec("7", gettext_lazy("Days for which histograms are kept; 0: forever."), 0, 36_500),
    "server-time": OptionSpec(
        "off", gettext_lazy("With 1, the server's clock is used instead of the clients' clocks."), 0, 1
    ),
    "max-index": OptionSpec(
        "2000000",
        gettext_lazy("Maximum number of entries of the index of jobs, about 210 bytes each; 0: no index."),
        0,
        1_000_000_000,
    ),
    "index-classes": OptionSpec(
        "",
        gettext_lazy(
            "Classes whose jobs are in the index in all states, separated by commas; *: all classes. The index always "
            "contains failed jobs. A small job in the index takes two to three times the memory."
        ),
    ),
    "max-payload": OptionSpec("0", gettext_lazy("Maximum bytes of arguments and results; 0: unlimited."), 0),
    "fixes": OptionSpec(
        "shared",
        gettext_lazy(
            "Fixes for known flaws of qless-core. shared: only fixes on which no client with another core (in Ruby, "
            "Python or Lua) can depend. all: all fixes; use it only if no such client uses the data. none: as "
            "qless-core."
        ),
        choices=("none", "shared", "all"),
    ),
}
QUEUE_OPTIONS: Final[Mapping[str, OptionSpec]] = {
    "-heartbeat": OptionSpec(
        "", gettext_lazy("Duration of a job's lock in this queue (seconds)."), 1, 8_640_000, False
    ),
    "-max-concurrency": OptionSpec("0", gettext_lazy("Maximum number of running jobs of this queue; 0: unlimited."), 0),
    "-pause-reason": OptionSpec("", gettext_lazy("Reason for the pause of this queue.")),
    "-paused-by": OptionSpec("", gettext_lazy("The user who paused this queue.")),
    "-paused-since": OptionSpec("", gettext_lazy("When this queue was paused (seconds since the epoch).")),
}
COLUMNS: Final = (
    Column("option", gettext_lazy("Option")),
    Column("value", gettext_lazy("Value")),
    Column("default", gettext_lazy("Default")),
    Column("meaning", gettext_lazy("Meaning"), sorts=False),
)


def option_spec(option: str) -> OptionSpec:
    """Return the default and the meaning of an option: of the core, of a queue, of a cron task, or a custom one."""
    if option in CORE_OPTIONS:
        return CORE_OPTIONS[option]
    if option.endswith(CRON_PAUSED):
        return OptionSpec("", _("The cron task is paused since this time (seconds since the epoch)."))
    specs = (spec for suffix, spec in QUEUE_OPTIONS.items() if option.endswith(suffix) and option != suffix)
    return next(specs, OptionSpec("", _("An option that the core does not know.")))


def _server_facts(client: Client) -> Iterator[tuple[str, object]]:
    """Yield facts about the server, without passwords, and about the versions."""
    from resty_django.redis.servers import address, server_info

    redis = client.source.sync()
    yield _("Key prefix"), client.prefix
    if conf.qless.url is None:
        yield _("Cache that defines the server"), conf.qless.alias
    yield _("Address"), formatting.name(address(redis), 1000)
    try:
        info = server_info(redis, client.prefix)
    except StoreDown:
        raise
    except StoreError as error:  # the server's user lacks permission for INFO
        yield _("Server"), printable(str(error), 300)
    else:
        persistence = {
            True: _("yes"),
            False: _("no: jobs are lost when the server stops"),
            None: _("unknown: the server does not report it"),
        }
        yield _("Server"), f"{info.name} {info.version}"
        yield _("Persistence"), persistence[info.keeps]
    yield "resty_django", resty_django.__version__
    yield _("Core (SHA1)"), format_html('<code class="resty-id">{}</code>', sha1(client.prefix))


def _number(value: str) -> float | str:
    return int(value) if re.fullmatch(r"\d{1,15}", value, re.ASCII) else value


def _grouped(value: str) -> str:
    return formatting.number(int(value)) if re.fullmatch(r"\d{1,15}", value, re.ASCII) else value


class OptionForm(SeenForm):
    def __init__(self, data: QueryDict | None, option: StoredOption) -> None:
        value = option.value if option.value and option.value.isprintable() else ""
        super().__init__(data, {"value": value})
        self.fields["value"] = option_spec(option.name).field(value)

    def clean_value(self) -> str:
        return str(self.cleaned_data["value"])


class NewOptionForm(NameForm):
    """Form that filters the list, and adds an option to it, which leads to its page."""

    option = forms.CharField(label=gettext_lazy("Another option"), max_length=200, required=False)


@dataclass(frozen=True, slots=True)
class StoredOption:
    """An option with its value; None: the default applies."""

    name: str
    value: str | None


def _set(option: StoredOption, data: dict[str, Any]) -> OperationResult:
    value, old_value = data["value"], option.value
    default_client().config.set(option.name, value)
    message = _("Option saved. It applies to all clients.")
    return OperationResult(
        f"Changed {changed_text('Value', 'default' if old_value is None else old_value, value)}.", message
    )


def _unset(option: StoredOption, data: dict[str, Any]) -> OperationResult:
    default_client().config.unset(option.name)
    return OperationResult(
        f"Unset; it was {printable(str(option.value), 200)}.", _("Option reset to its default."), gone=True
    )


UNSET: Final = Operation(
    "unset",
    gettext_lazy("Reset to the default"),
    "configure_jobs",
    _unset,
    gettext_lazy("Resets the option to its default, for all clients. The history keeps the former value."),
    done=gettext_lazy("Reset to the default:"),
    applies=lambda option: option.value is not None,
    title=gettext_lazy("Unset"),
    button=gettext_lazy("Unset the option"),
)


class OptionAdmin(JobsAdmin[Option]):
    live = False
    operations = (UNSET,)

    def load(self, names: Sequence[str]) -> dict[str, StoredOption]:
        stored = self._stored()
        return {name: StoredOption(name, stored.get(name)) for name in names}

    def listed_names(self, request: HttpRequest) -> list[str]:
        return self.filter_names(request, self._stored())

    def count_text(self, count: int) -> str:
        return ngettext("%(count)s option", "%(count)s options", count) % {"count": formatting.number(count)}

    def _stored(self) -> dict[str, str]:
        return {text(key): text(value) for key, value in redis_command(self.client(), "HGETALL", "config").items()}

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """List the options. URL parameters: `option`, an unlisted option to add; `name`, a text in the name."""
        requested = request.GET.get("option", "").strip()
        stored = self._stored()
        names = [*CORE_OPTIONS, *sorted(key for key in stored if key not in CORE_OPTIONS)]
        if requested and requested not in names:
            names.append(requested)
        matching = self.filter_names(request, names)
        rows = [self._row(option, stored.get(option)) for option in matching]
        empty = _("No matching options. Remove the filter.")
        options_table = table(
            request, COLUMNS, rows, caption=_("Options"), empty=empty, check_boxes=True, export="options"
        )
        return self.list_page(
            request,
            options_table,
            title=_("Configuration"),
            form=NewOptionForm(request.GET or None),
            facts=list(_server_facts(self.client())),
            **self.bulk_context(request, sum(option in stored for option in matching)),
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
        pick = token(option) if value is not None else ""
        values = {"option": option, "value": _number(spec.default if value is None else value)}
        values["default"] = _number(spec.default)
        return Row(cells, values, pick=pick, title=formatting.name(option))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: object = None
    ) -> HttpResponse:
        """Show an option; users with the permission `configure_jobs` get a form."""
        if not self.has_view_permission(request):
            raise PermissionDenied
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
            facts.append((_("Reset to the default"), format_html('<a href="{}">{}</a>', unset, _("Unset"))))
        if not self.may(request, "configure_jobs") and request.method in ("GET", "HEAD"):
            context = {
                "title": formatting.name(option),
                "object": Option(key=unquote(object_id)),
                "facts": facts,
                "back": formatting.list_url("option"),
            }
            return self.page(request, "admin/resty_django/action.html", context)

        operation = Operation("set", formatting.name(option), "configure_jobs", _set, form=OptionForm, button=_("Set"))
        return self.operation_view(request, object_id, operation, facts=facts, back=formatting.list_url("option"))
