"""Decisions: the result of one or several limiters for a request. Pure."""

from __future__ import annotations

from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace


class Decision(Struct, frozen=True, gc=False):
    """The decision of one limiter; true if the request may continue.

    Create it with `passed`, `delayed` or `refused`.
    """

    allowed: bool
    """Whether the request may continue."""
    delay: float = 0.0
    """Seconds to wait before continuing, 0 if refused."""
    state: float | None = None
    """Excess in requests (leaky bucket), requests left (windows), number in progress (concurrency) or tokens left
    (token bucket, negative if some are owed) after this request; None if it is refused."""
    limit: int = 0
    """The limit as clients see it: `burst` + 1, `limit`, `max` + `burst`, or `capacity`."""
    remaining: int = 0
    """The number of further requests of cost 1 that would pass now, never negative; for a token bucket, without
    waiting."""
    reset_after: float = 0.0
    """Seconds until the key is in its initial state, 0 for concurrency."""
    retry_after: float = 0.0
    """If refused, seconds after which the request would pass without other requests (concurrency: the measured duration
    of a request), else 0. Infinite for a request to a view whose cost can never pass."""
    failed: bool = False
    """Whether the store could not be used, so that `on_error` decided."""
    token: str = ""
    """Identifies the slot of `Concurrency`, to release it."""

    def __bool__(self) -> bool:
        return self.allowed

    @staticmethod
    def passed(
        *,
        limit: int,
        remaining: int,
        state: float | None = None,
        reset_after: float = 0.0,
        failed: bool = False,
    ) -> Decision:
        """Return a decision that lets the request continue at once."""
        return Decision(True, 0.0, state, limit, remaining, reset_after, 0.0, failed)

    @staticmethod
    def delayed(
        *, delay: float, state: float, limit: int, remaining: int, reset_after: float = 0.0, token: str = ""
    ) -> Decision:
        """Return a decision that lets the request continue after `delay` seconds; 0: at once."""
        return Decision(True, delay, state, limit, remaining, reset_after, 0.0, False, token)

    @staticmethod
    def refused(
        *, limit: int, remaining: int = 0, reset_after: float = 0.0, retry_after: float, failed: bool = False
    ) -> Decision:
        """Return a decision that refuses a request, which would pass after `retry_after` seconds."""
        return Decision(False, 0.0, None, limit, remaining, reset_after, retry_after, failed)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of these fields."""
        return replace(self, **changes)


class CombinedDecision(Decision, frozen=True, gc=False):
    """The combined decision of several limiters; true if all let the request continue.

    `delay` is the longest, `failed` is true if any limiter failed, `token` is the first non-empty one. The other
    numbers come from the limiter that refused, else from the one with the fewest `remaining`.
    """

    refused_by: int | None = None
    """The index of the limiter that refused."""
    decisions: tuple[Decision | None, ...] = ()
    """Each limiter's decision if it recorded or refused the request, else None."""
