"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.core.management.base import BaseCommand

from resty_django.text import one_line

LONGEST: Final = 60
"""Maximum characters of a name that another program wrote."""


def named(name: str) -> str:
    """Return a name on one line, with control characters escaped."""
    return one_line(name.replace("\n", " "), LONGEST)


def write(command: BaseCommand, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write the heads and the rows in columns, the first one left-aligned, the others right-aligned."""
    table = [heads, *([named(row[0]), *row[1:]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        line = "  ".join([f"{row[0]:{widths[0]}}", *cells])
        command.stdout.write(line if number else command.style.MIGRATE_HEADING(line))
