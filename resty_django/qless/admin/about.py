"""The page that tells where the jobs are, what holds for them, what the reader may do, and what the words mean."""

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
from resty_django.admin.overview import PERMISSION
from resty_django.admin.shown import printable
from resty_django.conf import conf
from resty_django.redis import StoreDown, StoreError
from resty_django.redis.servers import address, server_info

from ..classes import allowed
from ..core import sha1
from ..errors import QlessError
from ..models import About, Job
from . import shown, verbs
from .base import DOORS, TEMPLATES, VERBS, JobsAdmin
from .words import DEEDS, STATES

Fact = tuple[Any, Any]

SETTINGS: Final = ("modules", "worker_name", "result_ttl", "eager", "redact", "redactor", "links")
"""Those of the section that are shown, beside all about workers. The URL may have a password, so it is not one."""
SECONDS: Final = frozenset(("result_ttl", "interval", "grace"))
PAGES: Final = {
    "queue": gettext_lazy("What is in the queues, and what was done lately."),
    "job": gettext_lazy("Any jobs, by filters and a search; each has a page of its own."),
    "failuregroup": gettext_lazy("Failed jobs in groups, to be retried or canceled."),
    "worker": gettext_lazy("Who runs how many jobs."),
    "tag": gettext_lazy("Those used twice or more."),
    "recurringjob": gettext_lazy("What makes jobs at an interval, and when next."),
    "option": gettext_lazy("The options that hold for all clients."),
}
DOCS: Final = {
    "docs/qless/admin.md": gettext_lazy("These pages."),
    "docs/qless/client.md": gettext_lazy("How programs put jobs, and look at them."),
    "docs/qless/tasks.md": gettext_lazy("Functions as jobs."),
    "docs/qless/worker.md": gettext_lazy("How workers are run."),
    "docs/qless/core.md": gettext_lazy("Options, commands and keys of the core."),
    "docs/qless/api.md": gettext_lazy("The same over HTTP, and in a terminal."),
    "docs/settings.md#qless": gettext_lazy("All settings."),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A table of the page, and what is to be known of all its rows."""

    title: str
    facts: Sequence[Fact]
    note: str = ""


class AboutAdmin(JobsAdmin[About]):
    live = False

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.look(request)
        client, error = self.client(), ""
        where: list[Fact] = []
        locks: list[Fact] = []
        try:
            for fact in _server(client):  # those before an error stay
                where.append(fact)
            locks = _locks(client.config.all())
        except (StoreError, QlessError, ImproperlyConfigured) as caught:
            error = printable(str(caught), 1000)
        core = format_html('<code class="resty-id">{}</code>', sha1(client.prefix))
        parts = [
            Part(_("The server"), where),
            Part(_("Versions"), [("resty_django", resty_django.__version__), (_("Core, by its SHA1"), core)]),
            Part(
                _("What holds for jobs"),
                [*locks, *_settings()],
                _("These are the settings of this process. Workers may be told others on their command line."),
            ),
            Part(_("What you may do"), list(self._may(request))),
            Part(_("States"), [(shown.state(word), meaning) for word, meaning in STATES.items()]),
            Part(_("What can be done"), list(_deeds())),
            Part(_("Pages"), list(_pages(request))),
            Part(
                _("Documentation"),
                [(format_html("<code>{}</code>", name), about) for name, about in DOCS.items()],
                _("These files come with the source of resty_django."),
            ),
        ]
        context = {"title": _("About"), "error": error, "parts": parts}
        return self.page(request, f"{TEMPLATES}/about.html", context, status=503 if error else 200)  # type: ignore[no-any-return]

    def _may(self, request: HttpRequest) -> Iterator[Fact]:
        told = {"view_job": _("Can see all these pages"), **dict(Job._meta.permissions)}
        for codename in ("view_job", *VERBS):
            yield told[codename], _("yes") if self.may(request, codename) else _("no")


def _server(client: Any) -> Iterator[Fact]:
    """May raise in between."""
    yield _("Prefix of all keys"), client.prefix
    if conf.qless.url is None:
        yield _("Cache that names the server"), conf.qless.alias
    redis = client.source.sync()
    yield _("Address"), shown.name(address(redis), 1000)
    try:
        about = server_info(redis, client.prefix)
    except StoreDown:
        raise
    except StoreError as error:  # its user may not ask
        yield _("Server"), printable(str(error), 300)
        return
    yield _("Server"), f"{about.name} {about.version}"
    kept = {True: _("yes"), False: _("no: jobs are lost when the server ends"), None: _("the server does not tell")}
    yield _("Kept on a disk"), kept[about.keeps]


def _locks(config: Mapping[str, Any]) -> list[Fact]:
    own = sorted((option, value) for option, value in config.items() if option.endswith("-heartbeat"))
    of_queues = "".join(f"; {option.removesuffix('-heartbeat')}: {value} s" for option, value in own)
    lease = shown.name(f"{config.get('heartbeat')} s{of_queues}", 1000)
    grace = shown.name(f"{config.get('grace-period')} s")
    return [
        (shown.link("option", "heartbeat", _("Lease of a job")), lease),
        (shown.link("option", "grace-period", _("Grace after that")), grace),
    ]


def _settings() -> Iterator[Fact]:
    section = conf.qless
    of_apps = [
        module
        for module in allowed()
        if module not in section.modules and not module.startswith("resty_django.") and _exists(module)
    ]
    yield _("Modules of apps"), ", ".join(of_apps) or _("none")
    for name in SETTINGS:
        yield format_html("<code>{}</code>", name.upper()), _value(name, getattr(section, name))
    for field in dataclasses.fields(section.worker):
        label = format_html("<code>WORKER {}</code>", field.name.upper())
        yield label, _value(field.name, getattr(section.worker, field.name))


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _value(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, tuple):
        return ", ".join(value) or _("none")
    if value is None:
        return shown.NONE
    return shown.seconds(value) if name in SECONDS else shown.name(str(value))


def _deeds() -> Iterator[Fact]:
    for verb in verbs.VERBS.values():
        yield verb.label, verb.effect
    yield from DEEDS.values()


def _pages(request: HttpRequest) -> Iterator[Fact]:
    for model, label in DOORS:
        if model in PAGES:
            yield format_html('<a href="{}">{}</a>', shown.list_url(model), label), PAGES[model]
    if request.user.has_perm(PERMISSION):
        url = reverse("admin:resty_django_overview_changelist")
        yield format_html('<a href="{}">{}</a>', url, _("Overview")), _("All parts of resty_django.")


__all__ = ["DOCS", "AboutAdmin"]
