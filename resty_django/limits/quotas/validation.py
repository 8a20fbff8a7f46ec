"""Validation of the arguments of quotas: errors name the wrong argument."""

from __future__ import annotations

from collections.abc import Mapping

from ..limiters.validation import not_negative, whole
from ..requests.chosen_rates import RateFunction, Tiers
from ..specs.policy import MAX_NAME_CHARS


def checked_limit(limit: int) -> int:
    """Return the limit of a quota. Raise `TypeError` or `ValueError`."""
    whole("limit", limit)
    not_negative("limit", limit)
    return limit


def checked_units(units: int) -> int:
    """Return the units of a grant. Raise `TypeError` or `ValueError`."""
    whole("units", units)
    if not units:
        raise ValueError("units must not be 0. Pass the units to add, or a negative number to subtract them.")
    return units


def choice_of(
    limit: int | RateFunction | None, tiers: Mapping[str, int | None] | None, tier: RateFunction | str | None
) -> RateFunction | Tiers | None:
    """Return what chooses the limit of a request; None: it is a number. Raise `TypeError` or `ValueError`."""
    if (limit is None) == (tiers is None):
        raise TypeError('A quota needs either a limit, such as 1000, or tiers={"free": 100, "pro": 1000}.')
    if tiers is None:
        if tier is not None:
            raise TypeError('tier= needs tiers=, such as tiers={"free": 100, "pro": 1000}.')
        return limit if callable(limit) else None
    choice = Tiers(tiers, tier)
    for units in choice.rates.values():
        if units is not None:
            checked_limit(units)
    return choice


def checked_name(name: object) -> str:
    """Return the name of a quota. Raise `ValueError`."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MAX_NAME_CHARS
        or not name.isprintable()
        or name.strip() != name
    ):
        raise ValueError(f"name of a quota must be a text of 1 to {MAX_NAME_CHARS} characters, not {name!r}.")
    return name
