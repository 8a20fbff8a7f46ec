"""A model without a table, for Django's permissions and admin."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from resty_django.models import NoRows


class Cache(models.Model):
    """A cache in the admin: its name and its permissions."""

    name = models.CharField(_("name"), max_length=255, primary_key=True)

    objects: ClassVar[NoRows[Self]] = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        verbose_name = _("cache")
        verbose_name_plural = _("caches")
        default_permissions = ("view",)
        permissions = [
            ("view_cache_items", _("Can see keys and values of caches")),
            ("delete_cache_item", _("Can delete keys of caches")),
            ("purge_cache", _("Can purge caches")),
        ]

    def __str__(self) -> str:
        return self.name
