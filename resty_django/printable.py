"""Foreign texts made fit to be shown. Pure."""

from __future__ import annotations


def printable(text: str, longest: int) -> str:
    """The beginning of `text`, with what has no shape of its own written as an escape (`\\x00`, `\\u202e`).

    Line ends and tabs stay. The result can be encoded, also where `text` has lone surrogates.
    """
    made = "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text[:longest]
    )
    return made if len(text) <= longest else made + "…"


__all__ = ["printable"]
