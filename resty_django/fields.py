"""Model fields that several apps of the wheel use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _CharField = models.CharField[str, str]
else:
    _CharField = models.CharField


class ExactCharField(_CharField):
    """Text compared byte by byte on every database.

    MySQL and MariaDB would otherwise take "a", "A" and "á" for one name; there the column gets the collation
    utf8mb4_bin. SQLite and PostgreSQL compare exactly by themselves.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters
