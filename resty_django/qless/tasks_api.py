"""Django's tasks, wherever they are: `django.tasks` since Django 6.0, before that the package django-tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

import django
from django.conf import settings
from django.utils import timezone

API: Final = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"

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
    """A time as the settings want it, of seconds since the epoch."""
    if at is None:
        return None
    found = datetime.fromtimestamp(at, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found)


__all__ = [
    "API",
    "BaseTaskBackend",
    "InvalidTask",
    "Status",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "normalize_json",
    "signals",
    "task_backends",
    "time_of",
]
