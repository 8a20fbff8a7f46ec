"""Tables and exit codes of the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.core.management.base import BaseCommand

from resty_django.text import one_line

EXIT_DOWN: Final = 2
"""The exit code of a command if a server does not answer."""


def named(name: str) -> str:
    """Return at most 60 characters of a name on one line, with control characters escaped."""
    return one_line(name.replace("\n", " "), 60)


def write(command: BaseCommand, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write the heads and the rows in columns, the first one left-aligned, the others right-aligned."""
    table = [heads, *([named(row[0]), *row[1:]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        line = "  ".join([f"{row[0]:{widths[0]}}", *cells])
        command.stdout.write(line if number else command.style.MIGRATE_HEADING(line))
