"""The interface of Django's tasks: `django.tasks` since Django 6.0, before that the package django-tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

import django
from django.conf import settings
from django.utils import timezone

from resty_django import extras

API: Final = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

with extras.needed("Django's tasks need"):
    _base: Any = import_module(f"{API}.base")
    _exceptions: Any = import_module(f"{API}.exceptions")
    signals: Any = import_module(f"{API}.signals")
    task_backends: Any = import_module(API).task_backends
    normalize_json: Any = import_module("django.utils.json" if API == "django.tasks" else f"{API}.utils").normalize_json
    BaseTaskBackend: Any = import_module(f"{API}.backends.base").BaseTaskBackend
TaskContext, TaskError, TaskResult = _base.TaskContext, _base.TaskError, _base.TaskResult
Status: Any = _base.TaskResultStatus
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist


def time_of(at: float | None) -> datetime | None:
    """Return seconds since the epoch as a datetime, aware or naive according to USE_TZ; None beyond all years."""
    if at is None:
        return None
    try:
        aware = datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):  # written by another client
        return None
    return aware if settings.USE_TZ else timezone.make_naive(aware)
