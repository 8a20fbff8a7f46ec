"""The pages of the job queue in Django's admin."""

from __future__ import annotations

from django.contrib import admin

from ..models import FailureGroup, Job, Option, Queue, RecurringJob, Tag, Worker
from .failures import FailureGroupAdmin
from .jobs import JobAdmin
from .options import OptionAdmin
from .queues import QueueAdmin
from .recurring import RecurringJobAdmin
from .workers import TagAdmin, WorkerAdmin

admin.site.register(Queue, QueueAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(FailureGroup, FailureGroupAdmin)
admin.site.register(Worker, WorkerAdmin)
admin.site.register(Tag, TagAdmin)
admin.site.register(RecurringJob, RecurringJobAdmin)
admin.site.register(Option, OptionAdmin)

__all__ = [
    "FailureGroupAdmin",
    "JobAdmin",
    "OptionAdmin",
    "QueueAdmin",
    "RecurringJobAdmin",
    "TagAdmin",
    "WorkerAdmin",
]
