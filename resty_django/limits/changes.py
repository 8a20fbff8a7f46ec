"""A policy saved or deleted acts in this process when the commit returns, and in all others a moment later.

The others hear of it by the event `policy_changed`. Where there are no events they find the change at their next look.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from resty_django.events import event_list, on_event, post

from . import policy
from .models import LimitPolicy

log = logging.getLogger("resty_django.limits")

names = event_list("resty_limits", "policy_changed")


def _changed(sender: type[LimitPolicy], instance: LimitPolicy, using: str, **kwargs: Any) -> None:
    name = instance.name

    def look() -> None:
        try:
            if policy.ready():
                policy.refresh()
        except Exception:  # the change is committed; whoever saved it must not take it for failed
            log.exception("the change of policy %s acts in this process from the next look on", name)
        tell(name)

    transaction.on_commit(look, using=using)


def tell(name: str) -> None:
    """Tell all processes that a policy has changed. What is wrong with the events must not undo the change."""
    try:
        post(names._source, names.policy_changed, {"policy": name})
    except Exception as error:
        log.warning("other processes find the change of policy %s at their next look only: %s", name, error)


@on_event(names._source, names.policy_changed)
def _told(data: Any, event: str, source: str, pid: int | None) -> None:
    policy.refresh_soon()


def connect() -> None:
    """Connect the receivers; more than once does no harm."""
    post_save.connect(_changed, sender=LimitPolicy, dispatch_uid="resty_limits_policy_saved")
    post_delete.connect(_changed, sender=LimitPolicy, dispatch_uid="resty_limits_policy_deleted")
