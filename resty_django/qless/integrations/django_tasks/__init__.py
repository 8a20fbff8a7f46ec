"""A backend for Django's tasks that runs them as jobs.

    TASKS = {"default": {"BACKEND": "resty_django.qless.integrations.django_tasks.QlessBackend"}}

See docs/qless/django-tasks.md.
"""

from __future__ import annotations

from .backend import QlessBackend

__all__ = ["QlessBackend"]
