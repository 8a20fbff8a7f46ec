"""Decisions: the result of one or several limiters for a request. Pure."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Final, NamedTuple


class Decision(NamedTuple):
    """The decision of one limiter; true if the request may continue.

    Create it with `passed`, `delayed` or `refused`.

    `delay`: seconds to wait before continuing, 0 if refused. `state`: excess in requests (leaky bucket), number left
    (windows), number in progress (concurrency) or tokens left (token bucket) after this request, None if it is refused.
    `limit`: the limit as clients see it. `remaining`: the number of further requests that would pass now, never
    negative; for a token bucket, without waiting. `reset_after`: seconds until the key is in its initial state, 0 for
    concurrency. `retry_after`: if refused, seconds after which the request would pass without other requests, else 0;
    infinite for a request to a view whose cost can never pass. `failed`: whether the store could not be used, so that
    `on_error` decided. `token`: identifies the slot for `leaving`.
    """

    allowed: bool
    delay: float = 0.0
    state: float | None = None
    limit: int = 0
    remaining: int = 0
    reset_after: float = 0.0
    retry_after: float = 0.0
    failed: bool = False
    token: str = ""

    def __bool__(self) -> bool:
        return self.allowed

    @classmethod
    def passed(
        cls,
        *,
        limit: int,
        remaining: int,
        state: float | None = None,
        reset_after: float = 0.0,
        failed: bool = False,
        token: str = "",
    ) -> Decision:
        """Return a decision that lets the request continue at once."""
        return cls(True, 0.0, state, limit, remaining, reset_after, 0.0, failed, token)

    @classmethod
    def delayed(
        cls, *, delay: float, state: float, limit: int, remaining: int, reset_after: float = 0.0, token: str = ""
    ) -> Decision:
        """Return a decision that lets the request continue after `delay` seconds; 0: at once."""
        return cls(True, delay, state, limit, remaining, reset_after, 0.0, False, token)

    @classmethod
    def refused(
        cls, *, limit: int, remaining: int = 0, reset_after: float = 0.0, retry_after: float, failed: bool = False
    ) -> Decision:
        """Return a decision that refuses a request, which would pass after `retry_after` seconds."""
        return cls(False, 0.0, None, limit, remaining, reset_after, retry_after, failed, "")


decision_from: Final[Callable[[tuple[Any, ...]], Decision]] = MethodType(tuple.__new__, Decision)
"""Create a decision from its nine fields in order, without a Python call.

Only for the fast path of each algorithm; all other code uses the classmethods of `Decision`.
"""


class CombinedDecision(NamedTuple):
    """The combined decision of several limiters; true if all let the request continue.

    It has the fields of `Decision`: `delay` is the longest, `failed` is true if any limiter failed, `token` is the
    first non-empty one. The other numbers come from the limiter that refused, else from the one with the fewest
    `remaining`. `refused_by`: the index of the limiter that refused, or None. `decisions`: each limiter's decision if
    it recorded or refused the request, else None.
    """

    allowed: bool
    delay: float = 0.0
    state: float | None = None
    limit: int = 0
    remaining: int = 0
    reset_after: float = 0.0
    retry_after: float = 0.0
    failed: bool = False
    token: str = ""
    refused_by: int | None = None
    decisions: tuple[Decision | None, ...] = ()

    def __bool__(self) -> bool:
        return self.allowed
