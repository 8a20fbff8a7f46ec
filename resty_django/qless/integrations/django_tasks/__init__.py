"""A backend of Django's tasks, whose tasks run as jobs.

    TASKS = {"default": {"BACKEND": "resty_django.qless.integrations.django_tasks.QlessBackend"}}

See docs/qless/django-tasks.md.
"""

from __future__ import annotations

from .backend import QlessBackend

__all__ = ["QlessBackend"]
