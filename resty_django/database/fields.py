"""Model fields shared by several apps."""

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

    By default, MySQL and MariaDB treat "a", "A" and "á" as the same text, so there the column uses the collation
    utf8mb4_bin. SQLite and PostgreSQL need no special collation.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters
