"""Admin pages of the job queue; without redis-py, a single page that says how to install it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _

from resty_django import extras
from resty_django.admin.base import ReadOnlyAdmin, viewer_page
from resty_django.admin.deferred import DeferredAdmin

from ..errors import CLAUSE
from ..models import ArchivedJob, FailureGroup, Job, JobClass, JobGroup, Named, Option, Queue, RecurringJob, Tag, Worker

CLASSES: Final[Mapping[type[Named], tuple[str, tuple[str, ...]]]] = {
    Queue: ("queues.admin.QueueAdmin", ("bulk", "pause", "unpause", "forget")),
    Job: (
        "jobs.admin.JobAdmin",
        (
            *("start", "stuck", "bulk"),
            *("retry", "run_now", "move", "timeout", "priority", "tag", "untag", "track", "untrack", "release"),
            *("cancel", "retry_graph", "cancel_graph", "undepend", "clone"),
        ),
    ),
    FailureGroup: ("failures.FailureGroupAdmin", ("bulk",)),
    JobGroup: ("groups.JobGroupAdmin", ("retry", "cancel")),
    JobClass: ("classes.JobClassAdmin", ()),
    Worker: ("workers.admin.WorkerAdmin", ("bulk", "quiet", "resume", "stop", "scale", "stacks", "deregister")),
    Tag: ("tags.TagAdmin", ()),
    RecurringJob: (
        "recurring.admin.RecurringJobAdmin",
        ("bulk", "run_now", "pause", "resume", "cancel", "tag", "untag", "edit"),
    ),
    Option: ("options.OptionAdmin", ("bulk", "unset")),
}
"""The admin class of each model, and its additional pages besides list, history and object page."""
LISTS: Final = ("changelist", "bulk", "stuck", "start")
PERMISSION: Final = "resty_qless.view_job"


class MissingRedisAdmin(ReadOnlyAdmin[Queue]):
    """The only page of the job queue if redis-py is not installed."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(PERMISSION)

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show the command that installs the package (status 503, as for any page whose store is unavailable)."""
        context = {"title": _("Background jobs are not available"), "missing": extras.MissingExtra(CLAUSE, "redis")}
        return self.page(request, "admin/resty_qless/missing.html", context, status=503)


def register(site: admin.AdminSite) -> None:
    """Register all pages of the job queue, or only the page about the missing redis-py."""
    if not extras.is_installed("redis"):
        site.register(Queue, MissingRedisAdmin)
        return
    for model, (name, pages) in CLASSES.items():
        _register(site, model, name, ("changelist", *pages, "history", "change"))
    _register(site, ArchivedJob, "archived.ArchivedJobAdmin", ("changelist", "history", "change"))


def _register(site: admin.AdminSite, model: type[Named | ArchivedJob], name: str, pages: tuple[str, ...]) -> None:
    site.register(
        model,
        DeferredAdmin,
        full_class=f"{__name__}.{name}",
        pages=pages,
        lists=LISTS,
        view_permission=PERMISSION,
    )


register(admin.site)
