"""Invalidation: a saved or deleted policy or override takes effect in this process with its commit, elsewhere through
an event.

The event is `policy_changed`. Processes without events find the change with their next periodic read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from resty_django.events import event_list, on_event, post
from resty_django.text import logger

from ..models import LimitOverride, LimitPolicy

log = logger("resty_django.limits")

names = event_list("resty_limits", "policy_changed")

OVERRIDES: Final = "(overrides)"
"""The name in the event for changed overrides; the name of a policy has no brackets."""
_of_thread = threading.local()
"""`together`: whether the changes of the thread are announced at their end."""


def _changed(sender: type[LimitPolicy], instance: LimitPolicy, using: str, **kwargs: Any) -> None:
    _refresh_on_commit(instance.name, using)


def _override_changed(sender: type[LimitOverride], using: str, **kwargs: Any) -> None:
    if not getattr(_of_thread, "together", False):
        _refresh_on_commit(OVERRIDES, using)


@contextmanager
def overrides_changed_together(using: str) -> Iterator[None]:
    """In the block, save and delete overrides that take effect together, with one event."""
    _of_thread.together = True
    try:
        yield
    finally:
        _of_thread.together = False
    _refresh_on_commit(OVERRIDES, using)


def _refresh_on_commit(name: str, using: str) -> None:
    def refresh() -> None:
        from . import registry  # imports the models

        try:
            if registry.is_loaded():
                registry.refresh_policies()
        except Exception:  # the change is committed, so the save must not fail
            log.exception("The change of policy %s takes effect in this process with the next refresh.", name)
        announce(name)

    transaction.on_commit(refresh, using=using)


def announce(name: str) -> None:
    """Announce a changed policy to all processes. A failure of the events must not undo the change."""
    try:
        post(names.source, names.policy_changed, {"policy": name})
    except Exception as error:
        log.warning("Other processes will not see the change of policy %s until their next refresh: %s", name, error)


@on_event(names.source, names.policy_changed)
def _on_policy_changed(data: Any, event: str, source: str, pid: int | None) -> None:
    from . import registry

    registry.refresh_soon()


def connect() -> None:
    """Connect the receivers. Safe to call more than once."""
    post_save.connect(_changed, sender=LimitPolicy, dispatch_uid="resty_limits_policy_saved")
    post_delete.connect(_changed, sender=LimitPolicy, dispatch_uid="resty_limits_policy_deleted")
    post_save.connect(_override_changed, sender=LimitOverride, dispatch_uid="resty_limits_override_saved")
    post_delete.connect(_override_changed, sender=LimitOverride, dispatch_uid="resty_limits_override_deleted")
