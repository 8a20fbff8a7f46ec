"""Arguments of limiters: those that are wrong raise an error that names them. Pure."""

from __future__ import annotations

from typing import Any


def check_cost(cost: int) -> int:
    """A cost that counts. Raises `ValueError`."""
    if type(cost) is not int or cost < 1:
        raise ValueError(f"cost must be a whole number of at least 1, not {cost!r}.")
    return cost


def positive(name: str, value: Any) -> None:
    """Raises `TypeError` or `ValueError` where the argument `name` is not a number greater than 0."""
    _number(name, value)
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be greater than 0, not {value!r}.")


def not_negative(name: str, value: Any) -> None:
    """Raises `TypeError` or `ValueError` where the argument `name` is not a number of at least 0."""
    _number(name, value)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} must be at least 0, not {value!r}.")


def whole(name: str, value: Any) -> None:
    """Raises `TypeError` where the argument `name` is not a whole number."""
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r}.")


def _number(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}.")


def whole_limit(limit: int) -> int:
    """The limit of a window. Raises `TypeError`, `ValueError`."""
    positive("limit", limit)
    whole("limit", limit)
    return limit


def window_ms(window: float) -> int:
    """The length of a window in milliseconds. Raises `TypeError`, `ValueError`."""
    return milliseconds("window", window)


def milliseconds(name: str, seconds: float) -> int:
    """The argument `name`, a time of at least a millisecond, in whole ones. Raises `TypeError`, `ValueError`."""
    positive(name, seconds)
    if round(seconds * 1000) < 1:
        raise ValueError(f"{name} must be at least 0.001 seconds, not {seconds!r}.")
    return round(seconds * 1000)


__all__ = ["check_cost", "milliseconds", "not_negative", "positive", "whole", "whole_limit", "window_ms"]
