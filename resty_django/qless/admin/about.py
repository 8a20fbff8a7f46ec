"""About page: server, versions, settings, the user's permissions, and the meaning of states and operations."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

import resty_django
from resty_django.address import documentation
from resty_django.admin.formatting import NONE
from resty_django.admin.overview import PERMISSION
from resty_django.conf import conf
from resty_django.redis.errors import StoreDown, StoreError
from resty_django.text import printable

from ..core import sha1
from ..errors import QlessError
from ..models import About, Job
from ..tasks.registry import allowed
from . import formatting, operations
from .base import PERMISSIONS, TEMPLATES, JobsAdmin, nav_items
from .glossary import OPERATION_HELP, STATE_HELP

Fact = tuple[Any, Any]

SETTINGS: Final = ("modules", "worker_name", "result_ttl", "eager", "redact", "redactor", "links")
"""The settings shown in addition to the worker settings. The URL is left out, since it may contain a password."""
SECONDS: Final = frozenset(("result_ttl", "interval", "grace"))
PAGES: Final = {
    "queue": gettext_lazy("Jobs by queue and state, and recent throughput."),
    "job": gettext_lazy("All jobs, with filters and search; each job has its own page."),
    "failuregroup": gettext_lazy("Failed jobs by group, to retry or cancel."),
    "jobgroup": gettext_lazy("Groups of jobs with their progress and members."),
    "jobclass": gettext_lazy("Classes of jobs with their counts and durations over time."),
    "worker": gettext_lazy("Workers with their queues, states and jobs."),
    "tag": gettext_lazy("Tags that at least two jobs have."),
    "recurringjob": gettext_lazy("Jobs that are created at an interval, with their next times."),
    "archivedjob": gettext_lazy("Finished jobs that Redis no longer has."),
    "option": gettext_lazy("Options that apply to all clients."),
}
DOCS: Final = {
    "docs/qless/admin.md": gettext_lazy("These pages."),
    "docs/qless/client.md": gettext_lazy("Putting and inspecting jobs from code."),
    "docs/qless/tasks.md": gettext_lazy("Functions that run as jobs."),
    "docs/qless/worker.md": gettext_lazy("Running workers."),
    "docs/qless/core.md": gettext_lazy("Commands, keys and options of the core."),
    "docs/qless/api.md": gettext_lazy("The HTTP API and the terminal commands."),
    "docs/settings.md#qless": gettext_lazy("All settings."),
}


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the page, with a note about all of its rows."""

    title: str
    facts: Sequence[Fact]
    note: str = ""


class AboutAdmin(JobsAdmin[About]):
    live = False

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.check_view_permission(request)
        client, error = self.client(), ""
        server_facts: list[Fact] = []
        lease_facts: list[Fact] = []
        try:
            for fact in _server_facts(client):  # facts before an error stay
                server_facts.append(fact)
            lease_facts = _lease_facts(client.config.all())
        except (StoreError, QlessError, ImproperlyConfigured) as caught:
            error = printable(str(caught), 1000)
        core_hash = format_html('<code class="resty-id">{}</code>', sha1(client.prefix))
        sections = [
            Section(_("The server"), server_facts),
            Section(_("Versions"), [("resty_django", resty_django.__version__), (_("Core (SHA1)"), core_hash)]),
            Section(
                _("Leases and settings"),
                [*lease_facts, *_setting_facts()],
                _("These are the settings of this process. Options of a worker's command line override them."),
            ),
            Section(_("Your permissions"), list(self._permission_facts(request))),
            Section(_("States"), [(formatting.state(state), help_text) for state, help_text in STATE_HELP.items()]),
            Section(_("Operations"), list(_operation_facts())),
            Section(_("Pages"), list(_page_links(request))),
            Section(
                _("Documentation"),
                [(_documentation_link(path), description) for path, description in DOCS.items()],
                _("These files come with the source of resty_django."),
            ),
        ]
        context = {"title": _("About"), "error": error, "sections": sections}
        return self.page(request, f"{TEMPLATES}/about.html", context, status=503 if error else 200)

    def _permission_facts(self, request: HttpRequest) -> Iterator[Fact]:
        labels = {"view_job": _("Can view all of these pages"), **dict(Job._meta.permissions)}
        for codename in ("view_job", *PERMISSIONS):
            yield labels[codename], _("yes") if self.may(request, codename) else _("no")


def _documentation_link(path: str) -> str:
    """Return a documentation page as a link, or as a path while the project has no website."""
    url = documentation(path)
    return format_html("<code>{}</code>", path) if url == path else format_html('<a href="{}">{}</a>', url, path)


def _server_facts(client: Any) -> Iterator[Fact]:
    """Yield facts about the server. May raise after some of them."""
    from resty_django.redis.servers import address, server_info

    yield _("Key prefix"), client.prefix
    if conf.qless.url is None:
        yield _("Cache that defines the server"), conf.qless.alias
    redis = client.source.sync()
    yield _("Address"), formatting.name(address(redis), 1000)
    try:
        info = server_info(redis, client.prefix)
    except StoreDown:
        raise
    except StoreError as error:  # the server's user lacks permission for INFO
        yield _("Server"), printable(str(error), 300)
        return
    yield _("Server"), f"{info.name} {info.version}"
    persistence = {
        True: _("yes"),
        False: _("no: jobs are lost when the server stops"),
        None: _("unknown: the server does not report it"),
    }
    yield _("Persistence"), persistence[info.keeps]


def _lease_facts(config: Mapping[str, Any]) -> list[Fact]:
    queue_options = sorted((option, value) for option, value in config.items() if option.endswith("-heartbeat"))
    queue_leases = "".join(
        f"; {option.removesuffix('-heartbeat')}: {formatting.seconds(value)}" for option, value in queue_options
    )
    lease = formatting.name(f"{formatting.seconds(config.get('heartbeat'))}{queue_leases}", 1000)
    grace = formatting.seconds(config.get("grace-period"))
    return [
        (formatting.link("option", "heartbeat", _("Job lease")), lease),
        (formatting.link("option", "grace-period", _("Grace period")), grace),
    ]


def _setting_facts() -> Iterator[Fact]:
    section = conf.qless
    app_modules = [
        module
        for module in allowed()
        if module not in section.modules and not module.startswith("resty_django.") and _can_import(module)
    ]
    yield _("Modules of apps"), ", ".join(app_modules) or _("none")
    for name in SETTINGS:
        yield format_html("<code>{}</code>", name.upper()), _setting_text(name, getattr(section, name))
    for field in dataclasses.fields(section.worker):
        label = format_html("<code>WORKER {}</code>", field.name.upper())
        yield label, _setting_text(field.name, getattr(section.worker, field.name))


def _can_import(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _setting_text(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, tuple):
        return ", ".join(value) or _("none")
    if value is None:
        return NONE
    return formatting.duration(value) if name in SECONDS else formatting.name(str(value))


def _operation_facts() -> Iterator[Fact]:
    for operation in operations.OPERATIONS.values():
        yield operation.label, operation.effect
    yield from OPERATION_HELP.values()


def _page_links(request: HttpRequest) -> Iterator[Fact]:
    for model, label in nav_items():
        if model in PAGES:
            yield format_html('<a href="{}">{}</a>', formatting.list_url(model), label), PAGES[model]
    if request.user.has_perm(PERMISSION):
        url = reverse("admin:resty_django_overview_changelist")
        yield format_html('<a href="{}">{}</a>', url, _("Overview")), _("All parts of resty_django.")
