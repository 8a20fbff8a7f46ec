"""Entries in the admin's history for changes of jobs and queues, also for those made through the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import router, transaction

from resty_django.text import printable

from .models import Named

LONGEST: Final = 2000
"""Length of an entry in characters."""


def note(user: Any, rows: Sequence[Named], text: str) -> None:
    """Add an entry for each of `rows`.

    None is added on sites without `django.contrib.admin`, nor for anonymous callers and those known by a token alone,
    which have no row in the user table. Raises database errors.
    """
    if not rows or not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry

    user_model, database = get_user_model(), router.db_for_write(LogEntry)
    with transaction.atomic(using=database):
        if isinstance(user, user_model) and user_model._base_manager.using(database).filter(pk=user.pk).exists():
            LogEntry.objects.log_actions(user.pk, rows, CHANGE, printable(text, LONGEST))
