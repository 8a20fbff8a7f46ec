"""Errors of limits. Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import Decision


class LimitError(Exception):
    """The base of all errors of limits."""


class StoreFailed(LimitError):
    """The store cannot be used at the moment, and the limiter's `on_error` is "raise"."""


class ForeignData(StoreFailed):
    """Other code has stored data of another kind under the key: "shdict abused by other users"."""


class NotFound(LimitError, LookupError):
    """The key has no recorded request, so nothing can be undone."""


class CostTooHigh(LimitError, ValueError):
    """The cost of the request is higher than its limit ever allows, so waiting does not help."""


class Limited(LimitError):
    """The request was refused; `decision` has the limit and the time to wait."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        seconds = self.decision.retry_after
        later = f"Try again after {seconds:g} s." if seconds < inf else "It does not pass later either."
        return f"Over the limit of {self.decision.limit}. {later}"


class TooManyWaiting(Limited):
    """The call would have to wait, but too many calls of the process wait already.

    `count`: the number that may wait. `option`: the setting or the argument that sets it.
    """

    def __init__(self, decision: Decision, count: int, option: str) -> None:
        super().__init__(decision)
        self.args = (decision, count, option)
        self.count = count
        self.option = option

    def __str__(self) -> str:
        waiting = f"{self.count} calls of this process wait" if self.count else "No call may wait"
        return f"{super().__str__()} {waiting}: see {self.option}."
