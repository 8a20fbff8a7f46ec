"""Who did what to jobs and queues: the history that Django's admin keeps, whichever door they came through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import router, transaction

from resty_django.printable import printable

from .models import Named

LONGEST: Final = 2000
"""Characters of an entry."""


def note(user: Any, rows: Sequence[Named], text: str) -> None:
    """Leave an entry about each of `rows`.

    There is none on a site without `django.contrib.admin`, and none of those who have no row among the site's users:
    callers that are anonymous, or known by a token alone. Raises the errors of the database.
    """
    if not rows or not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry

    people, database = get_user_model(), router.db_for_write(LogEntry)
    with transaction.atomic(using=database):
        if isinstance(user, people) and people._base_manager.using(database).filter(pk=user.pk).exists():
            LogEntry.objects.log_actions(user.pk, rows, CHANGE, printable(text, LONGEST))


__all__ = ["LONGEST", "note"]
