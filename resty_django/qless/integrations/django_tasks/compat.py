"""Django's task interface: `django.tasks` since Django 6.0, before that the package django-tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django

from resty_django import extras

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.backends.dummy import DummyBackend
    from django.tasks.backends.immediate import ImmediateBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.utils.json import normalize_json
else:
    with extras.needed("Django's tasks need"):
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.backends.dummy import DummyBackend
        from django_tasks.backends.immediate import ImmediateBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.utils import normalize_json

__all__ = [
    "BaseTaskBackend",
    "DummyBackend",
    "ImmediateBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task_backends",
]
