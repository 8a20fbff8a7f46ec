"""Django's backends for tests, whose tasks may have the options of `QlessTask`. The options have no effect there.

    TASKS = {"default": {"BACKEND": "resty_django.qless.testing.django_tasks.DummyBackend"}}

With Django's own, `@task(retries=3)` raises `TypeError` when its module is imported.
"""

from __future__ import annotations

from ..integrations.django_tasks import QlessTask, compat


class DummyBackend(compat.DummyBackend):
    """Collects results in `results`, and runs nothing."""

    task_class = QlessTask


class ImmediateBackend(compat.ImmediateBackend):
    """Runs each task at once, in the thread that enqueues it."""

    task_class = QlessTask
