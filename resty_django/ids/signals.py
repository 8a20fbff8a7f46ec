"""A rule saved or deleted in this process is in effect here when the commit returns."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.signals import post_delete, post_save

from .models import IdRule


def _changed(sender: type[IdRule], using: str, **kwargs: Any) -> None:
    from . import service

    def look() -> None:
        if service._service is not None:
            service._service.refresh_now()

    transaction.on_commit(look, using=using)


def connect() -> None:
    """Connect the receivers; more than once does no harm."""
    post_save.connect(_changed, sender=IdRule, dispatch_uid="resty_ids_rule_saved")
    post_delete.connect(_changed, sender=IdRule, dispatch_uid="resty_ids_rule_deleted")
