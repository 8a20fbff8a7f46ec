"""Propagation of saved and deleted rules: to this process with the commit, and to all others a moment later.

The other processes receive the event `rule_changed`. Without events, they find the change at their next check.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from resty_django.events import event_list, on_event, post
from resty_django.text import logger

from .models import IdRule

log = logger("resty_django.ids")

names = event_list("resty_ids", "rule_changed")


def _changed(sender: type[IdRule], instance: IdRule, using: str, **kwargs: object) -> None:
    from . import service

    def look() -> None:
        if service._service is not None:
            service._service.refresh_now()
        tell(instance.name)

    transaction.on_commit(look, using=using)


def tell(rule: str) -> None:
    """Notify all processes that a rule has changed. A failure of the events must not prevent saving the rule."""
    try:
        post(names.source, names.rule_changed, {"rule": rule})
    except Exception as error:
        log.warning("Other processes will not see the change of rule %s until their next check: %s", rule, error)


@on_event(names.source, names.rule_changed)
def _told(data: object, event: str, source: str, pid: int | None) -> None:
    from . import service

    if service._service is not None:
        service._service.refresh_soon()


def connect() -> None:
    """Connect the receivers. Safe to call more than once."""
    post_save.connect(_changed, sender=IdRule, dispatch_uid="resty_ids_rule_saved")
    post_delete.connect(_changed, sender=IdRule, dispatch_uid="resty_ids_rule_deleted")
