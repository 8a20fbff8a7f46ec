"""Suggestions for misspelt names in messages. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name in `names` that is most similar to `name`, ignoring case; None if no name is similar.

    A name with more than 80 characters gets no suggestion.
    """
    if len(name) > 80:
        return None
    by_folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.55)
    return by_folded[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", *, quote: str = "'") -> str:
    """Return the question for the nearest of `names`, such as "Did you mean 'burst'?"; else `otherwise`."""
    close = nearest(name, names)
    return otherwise if close is None else f"Did you mean {quote}{close}{quote}?"
