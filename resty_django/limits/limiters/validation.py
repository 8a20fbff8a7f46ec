"""Validation of arguments: errors name the wrong argument. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Final

from resty_django.text.suggestions import did_you_mean

from ..errors import CostTooHigh

MIN_NUMBER: Final = 1e-9
"""The minimum of rates, intervals and other numbers above 0, in their unit."""
MAX_AMOUNT: Final = 10**15
"""The maximum of requests, tokens, rates and milliseconds."""
MAX_SECONDS: Final = 10**9
"""The maximum of times such as windows, leases and waits."""


def unknown_option(title: str, name: str, call: Callable[..., object], options: Iterable[str]) -> str:
    """Return the message for a keyword argument that `call` does not accept, with the most similar accepted name.

    `title`: the call as users write it. `options`: the accepted names in addition to the parameters of `call`.
    """
    parameters = inspect.signature(call).parameters.values()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in parameters if parameter.kind in by_name] + sorted(options)
    hint = did_you_mean(name, names, f"Use {', '.join(names)}.")
    return f"{title} has no option {name!r}. {hint}"


def check_cost(cost: int) -> int:
    """Return the cost. Raise `ValueError` for one below 1 or with a fraction, `CostTooHigh` above `MAX_AMOUNT`."""
    if type(cost) is not int or cost < 1:
        raise ValueError(f"cost must be a whole number of at least 1, not {cost!r}.")
    if cost > MAX_AMOUNT:
        raise CostTooHigh(f"cost must be at most {MAX_AMOUNT:,}, not {cost!r}. Lower the cost.")
    return cost


def check_on_error(on_error: str | None) -> None:
    """Raise `ValueError` if this is not a value of the option `on_error`."""
    if on_error not in (None, "open", "closed", "local", "raise"):
        raise ValueError(f"on_error must be one of open, closed, local, raise, not {on_error!r}.")


def positive(name: str, value: object, most: int = MAX_AMOUNT) -> None:
    """Raise `TypeError` or `ValueError` if the argument `name` is not a number from `MIN_NUMBER` to `most`."""
    if not MIN_NUMBER <= _number(name, value) <= most:
        raise ValueError(f"{name} must be greater than 0, from {MIN_NUMBER:g} to {most:,}, not {value!r}.")


def not_negative(name: str, value: object, most: int = MAX_AMOUNT) -> None:
    """Raise `TypeError` or `ValueError` if the argument `name` is not a number from 0 to `most`."""
    number = _number(name, value)
    if number > most:
        raise ValueError(f"{name} must be at most {most:,}, not {value!r}.")
    if not number >= 0:  # NaN, too
        raise ValueError(f"{name} must be at least 0, not {value!r}.")


def whole(name: str, value: object) -> None:
    """Raise `TypeError` if the argument `name` is not a whole number."""
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r}.")


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    return value


def whole_limit(limit: int) -> int:
    """Return the limit of a window. Raise `TypeError` or `ValueError`."""
    positive("limit", limit)
    whole("limit", limit)
    return limit


def window_ms(window: float) -> int:
    """Return the length of a window in milliseconds. Raise `TypeError` or `ValueError`."""
    return milliseconds("window", window)


def milliseconds(name: str, seconds: float) -> int:
    """Return the argument `name` in whole milliseconds, at least one. Raise `TypeError` or `ValueError`."""
    positive(name, seconds, MAX_SECONDS)
    if round(seconds * 1000) < 1:
        raise ValueError(f"{name} must be at least 0.001 seconds, not {seconds!r}.")
    return round(seconds * 1000)
