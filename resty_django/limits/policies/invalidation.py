"""Invalidation: a saved or deleted policy or override takes effect in this process with its commit, elsewhere through
an event.

The event is `policy_changed`. Processes without events find the change with their next periodic read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from django.db import transaction
from django.db.models import Model
from django.db.models.signals import post_delete, post_save

from resty_django.events import event_list, on_event, post
from resty_django.text import logger

from ..models import LimitOverride, LimitPolicy
from . import registry

log = logger("resty_django.limits")

names = event_list("resty_limits", "policy_changed")

OVERRIDES: Final = "(overrides)"
"""The name in the event for changed overrides; the name of a policy has no brackets."""
_of_thread = threading.local()
"""`changed`: a dict with the names that the thread has changed in `changed_together`; None outside of it."""


def _changed(sender: type[Model], instance: Model, using: str, **kwargs: object) -> None:
    name = instance.name if isinstance(instance, LimitPolicy) else OVERRIDES
    changed: dict[str, None] | None = getattr(_of_thread, "changed", None)
    if changed is None:
        _refresh_on_commit([name], using)
    else:
        changed[name] = None


@contextmanager
def changed_together(using: str) -> Iterator[None]:
    """In the block, save and delete policies and overrides that take effect together, after one read."""
    changed: dict[str, None] = {}
    _of_thread.changed = changed
    try:
        yield
    finally:
        _of_thread.changed = None
    if changed:
        _refresh_on_commit(changed, using)


def _refresh_on_commit(changed: Iterable[str], using: str) -> None:
    def refresh() -> None:
        try:
            if registry.is_loaded():
                registry.refresh_policies()
        except Exception:  # the change is committed, so the save must not fail
            log.exception(
                "The change of policy %s takes effect in this process with the next refresh.", ", ".join(changed)
            )
        for name in changed:
            announce(name)

    transaction.on_commit(refresh, using=using)


def announce(name: str) -> None:
    """Announce a changed policy to all processes. A failure of the events must not undo the change."""
    try:
        post(names.source, names.policy_changed, {"policy": name})
    except Exception as error:
        log.warning("Other processes will not see the change of policy %s until their next refresh: %s", name, error)


@on_event(names.source, names.policy_changed)
def _on_policy_changed(data: object, event: str, source: str, pid: int | None) -> None:
    registry.refresh_soon()


def connect() -> None:
    """Connect the receivers. Safe to call more than once."""
    for model in (LimitPolicy, LimitOverride):
        post_save.connect(_changed, sender=model, dispatch_uid=f"{model._meta.label_lower}_saved")
        post_delete.connect(_changed, sender=model, dispatch_uid=f"{model._meta.label_lower}_deleted")
