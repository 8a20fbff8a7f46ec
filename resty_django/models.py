"""Models without tables, for Django's permissions and admin."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

from django.db import models
from django.utils.translation import gettext_lazy as _

Model = TypeVar("Model", bound=models.Model)


class NoRows(models.Manager[Model]):
    """A manager that never queries the database, so that `dumpdata` and the like do not fail on the missing table."""

    def get_queryset(self) -> models.QuerySet[Model]:
        return super().get_queryset().none()


class Unmanaged(models.Model):
    """An object of the admin that has a name and permissions, but no table."""

    name = models.CharField(_("name"), max_length=255, primary_key=True)

    objects: ClassVar[NoRows[Self]] = NoRows()

    class Meta:
        abstract = True
        managed = False
        base_manager_name = "objects"
        default_permissions: ClassVar = ("view",)

    def __str__(self) -> str:
        return self.name


class SharedDictionary(Unmanaged):
    """A shared dictionary in the admin: its name and its permissions."""

    class Meta(Unmanaged.Meta):
        app_label = "resty_django"  # lets Django reach the check for the missing core app
        verbose_name = _("shared dictionary")
        verbose_name_plural = _("shared dictionaries")
        permissions = [
            ("view_dictionary_items", _("Can see keys and values of shared dictionaries")),
            ("delete_dictionary_item", _("Can delete keys of shared dictionaries")),
            ("flush_expired_items", _("Can free expired items of shared dictionaries")),
            ("flush_dictionary", _("Can empty shared dictionaries")),
        ]


class Overview(Unmanaged):
    """The overview of the whole package, for the admin's app list and for its permissions."""

    class Meta(Unmanaged.Meta):
        app_label = "resty_django"
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
        permissions = [("view_metrics", _("Can see the metrics"))]
