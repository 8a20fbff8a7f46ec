"""What can go wrong with limits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decision import CombinedDecision, Decision


class LimitError(Exception):
    """The base of all errors of limits."""


class StoreFailed(LimitError):
    """The store cannot be used now, and the limiter's `on_error` is "raise"."""


class ForeignData(StoreFailed):
    """Somebody else keeps something else under the key: "shdict abused by other users"."""


class NotFound(LimitError, LookupError):
    """Nothing is recorded of the key, so nothing can be given back."""


class Limited(LimitError):
    """The request was refused; `decision` says why and until when."""

    def __init__(self, decision: Decision | CombinedDecision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        return f"Over the limit of {self.decision.limit}. Try again after {self.decision.retry_after:g} s."


__all__ = ["ForeignData", "LimitError", "Limited", "NotFound", "StoreFailed"]
