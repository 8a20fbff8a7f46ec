"""id_server's counter table, read through a database alias."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db import Error as DatabaseError
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from .config import Refused

COLUMNS = ("rule_name", "app_name", "node_offset", "counter", "update_time")


@dataclass(frozen=True)
class IdServerRow:
    """A row. `value`: ahead of the counter; all numbers up to it may have been issued. `saved_at`: epoch seconds."""

    rule: str
    app: str
    node_offset: int
    value: int
    saved_at: int


def read_rows(alias: str, table: str = "counter") -> list[IdServerRow]:
    """Return all rows of the table. Raise Refused if it cannot be read."""
    if not re.fullmatch(r"\w+", table):
        raise Refused(f"--table is {table!r}. Use a name of letters, digits and _ only.")
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist:
        raise Refused(f"--database {alias!r} does not exist. DATABASES has {', '.join(connections)}.") from None
    quote = connection.ops.quote_name
    columns = ", ".join(map(quote, COLUMNS))
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {columns} FROM {quote(table)} ORDER BY {columns}")  # noqa: S608
            rows = cursor.fetchall()
        return [IdServerRow(str(rule), str(app), int(node), int(value), int(at)) for rule, app, node, value, at in rows]
    except (DatabaseError, ValueError, TypeError) as error:
        raise Refused(
            f"The table {table} of the database {alias} cannot be read ({error}). It must have the columns "
            f"{', '.join(COLUMNS)}."
        ) from error
