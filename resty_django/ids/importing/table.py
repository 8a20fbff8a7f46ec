"""The table of counters of an id_server, read by way of a database alias."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db import Error as DatabaseError
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from .config import Refused

COLUMNS = ("rule_name", "app_name", "node_offset", "counter", "update_time")


@dataclass(frozen=True)
class OriginalRow:
    """A row. `value` is ahead of the counter: every number up to it may have been given out. `saved_at`: epoch s."""

    rule: str
    app: str
    node_offset: int
    value: int
    saved_at: int


def read_rows(alias: str, table: str = "counter") -> list[OriginalRow]:
    """All rows of the table; Refused when it cannot be read."""
    if not re.fullmatch(r"\w+", table):
        raise Refused(f"--table is {table!r}; a name of a table has letters, digits and _ only.")
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist:
        raise Refused(f"--database is {alias!r}; DATABASES has {', '.join(connections)}.") from None
    quote = connection.ops.quote_name
    columns = ", ".join(map(quote, COLUMNS))
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {quote(table)} ORDER BY {columns}")  # noqa: S608
            found = cursor.fetchall()
        return [
            OriginalRow(str(rule), str(app), int(node), int(value), int(at)) for rule, app, node, value, at in found
        ]
    except (DatabaseError, ValueError, TypeError) as error:
        raise Refused(
            f"the table {table} of the database {alias} cannot be read ({error}); it must have the columns "
            f"{', '.join(COLUMNS)}."
        ) from error
