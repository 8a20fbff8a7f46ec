"""An abstract model for rows that several people may edit at the same time."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F
from django.utils.translation import gettext_lazy as _


class Versioned(models.Model):
    """A row whose version grows with each save, so that forms notice other edits and processes reload changed rows."""

    version = models.BigIntegerField(_("version"), default=1, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save with the next version."""
        if not self._state.adding:
            self.version = F("version") + 1
            if kwargs.get("update_fields") is not None:
                kwargs["update_fields"] = {*kwargs["update_fields"], "version", "updated_at"}
        super().save(*args, **kwargs)
        if self.version.__class__ is not int:
            self.refresh_from_db(fields=["version"], using=self._state.db)
