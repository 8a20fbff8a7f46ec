"""Tables in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from resty_django.printable import printable

LONGEST: Final = 60
"""Characters of a name that another program wrote."""


def named(name: str) -> str:
    """A name on one line, without what would steer a terminal."""
    return printable(name.replace("\n", " "), LONGEST)


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The heads and the rows, in columns; the first column begins on the left, the others end on the right."""
    shown = [heads, *([named(row[0]), *row[1:]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return [
        "  ".join(
            [f"{row[0]:{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in shown
    ]


__all__ = ["lines", "named"]
