"""Admin pages of the job queue; without redis-py, a single page that says how to install it."""

from __future__ import annotations

from typing import Final

from django.contrib import admin

from resty_django import extras
from resty_django.admin.deferred import DeferredAdmin

from ..models import (
    ArchivedJob,
    FailureGroup,
    Job,
    JobClass,
    JobGroup,
    Named,
    Option,
    OutboxEntry,
    Queue,
    RecurringJob,
    Tag,
    Worker,
)

LISTED: Final = (Queue, Job, FailureGroup, Worker, RecurringJob)
"""The models in the admin's list; tabs of their pages lead to the others."""
PERMISSION: Final = "resty_qless.view_job"


def register(site: admin.AdminSite) -> None:
    """Register all pages of the job queue, or only the page about the missing redis-py."""
    if not extras.is_installed("redis"):
        _register(site, Queue, "missing.MissingRedisAdmin", ("changelist",))
        return
    # the admin class of each model, and its pages besides list, history and object page
    classes: dict[type[Named | OutboxEntry], tuple[str, tuple[str, ...]]] = {
        Queue: ("queues.admin.QueueAdmin", ("bulk", "pause", "unpause", "forget")),
        Job: (
            "jobs.admin.JobAdmin",
            (
                *("start", "stuck", "bulk"),
                *("retry", "run_now", "move", "timeout", "priority", "tag", "untag", "track", "untrack", "release"),
                *("cancel", "retry_graph", "cancel_graph", "undepend", "clone"),
            ),
        ),
        FailureGroup: ("failures.FailureGroupAdmin", ("bulk", "pace", "stop_pace")),
        Worker: ("workers.admin.WorkerAdmin", ("bulk", "quiet", "resume", "stop", "scale", "stacks", "deregister")),
        RecurringJob: (
            "recurring.admin.RecurringJobAdmin",
            ("bulk", "run_now", "pause", "resume", "cancel", "tag", "untag", "edit"),
        ),
        JobGroup: ("groups.JobGroupAdmin", ("retry", "cancel")),
        JobClass: ("classes.JobClassAdmin", ()),
        Tag: ("tags.TagAdmin", ()),
        Option: ("options.OptionAdmin", ("bulk", "unset")),
        OutboxEntry: ("outbox.OutboxEntryAdmin", ("bulk", "deliver", "discard")),
    }
    for model, (name, pages) in classes.items():
        _register(site, model, name, ("changelist", *pages, "history", "change"))
    _register(site, ArchivedJob, "archived.ArchivedJobAdmin", ("changelist", "history", "change"))


def _register(
    site: admin.AdminSite, model: type[Named | ArchivedJob | OutboxEntry], name: str, pages: tuple[str, ...]
) -> None:
    site.register(
        model,
        DeferredAdmin,
        full_class=f"{__name__}.{name}",
        pages=pages,
        lists=("changelist", "bulk", "stuck", "start"),
        view_permission=PERMISSION,
        listed=model in LISTED,
    )


register(admin.site)
