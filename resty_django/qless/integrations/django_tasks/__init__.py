"""A backend for Django's tasks that runs them as jobs.

    TASKS = {"default": {"BACKEND": "resty_django.qless.integrations.django_tasks.QlessBackend"}}

- `backend`: enqueues tasks as jobs, and looks up their results.
- `task`: the class of tasks, with the options that Django's own do not have.
- `runner`: runs these jobs in a worker.
- `results`: the data of these jobs, and Django's `TaskResult` made from them.

See docs/reference/jobs/django-tasks.md.
"""

from __future__ import annotations

from .backend import QlessBackend
from .task import QlessTask

__all__ = ["QlessBackend", "QlessTask"]
