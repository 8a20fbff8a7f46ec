"""The pages of the job queue in Django's admin."""

from __future__ import annotations

from django.contrib import admin

from ..models import About, FailureGroup, Job, Option, Queue, RecurringJob, Tag, Worker
from .about import AboutAdmin
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
admin.site.register(About, AboutAdmin)

__all__ = [
    "AboutAdmin",
    "FailureGroupAdmin",
    "JobAdmin",
    "OptionAdmin",
    "QueueAdmin",
    "RecurringJobAdmin",
    "TagAdmin",
    "WorkerAdmin",
]
