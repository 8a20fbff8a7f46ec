"""Decisions: the result of a limiter, or of several, on a request. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple


class Decision(NamedTuple):
    """The decision of one limiter; true where the request may go on.

    Build one by `passed`, `delayed` or `refused`.

    `delay`: seconds to wait before going on, 0 where refused. `state`: excess in requests (leaky bucket), number left
    (windows), number in progress (concurrency) or tokens left (token bucket) after this request, None where it is
    refused. `limit`: the limit as clients see it. `remaining`: how many more requests would pass at this instant, never
    negative; of a token bucket how many need not wait. `reset_after`: seconds until the key is as if unused, 0 for
    concurrency. `retry_after`: where refused, seconds after which it would pass if nobody else came; else 0. It is
    infinite for a request to a view whose cost can never pass. `failed`: the store could not be used, and `on_error`
    decided. `token`: names the slot that was taken, for `leaving`.
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
        """Return the decision that the request goes on at once."""
        return cls(True, 0.0, state, limit, remaining, reset_after, 0.0, failed, token)

    @classmethod
    def delayed(
        cls, *, delay: float, state: float, limit: int, remaining: int, reset_after: float = 0.0, token: str = ""
    ) -> Decision:
        """Return the decision that the request goes on after `delay` seconds; 0: at once."""
        return cls(True, delay, state, limit, remaining, reset_after, 0.0, False, token)

    @classmethod
    def refused(
        cls, *, limit: int, remaining: int = 0, reset_after: float = 0.0, retry_after: float, failed: bool = False
    ) -> Decision:
        """Return the refusal of a request that would pass after `retry_after` seconds."""
        return cls(False, 0.0, None, limit, remaining, reset_after, retry_after, failed, "")


decision_from: Final[Callable[[tuple[Any, ...]], Decision]] = partial(tuple.__new__, Decision)
"""A decision from all its nine fields in their order, without a Python call.

For the fast path of each algorithm alone; everything else uses the classmethods of `Decision`.
"""


class CombinedDecision(NamedTuple):
    """The decision of several limiters together; true where all let the request go on.

    The fields of `Decision`: `delay` is the longest, `failed` is set where one of them failed, `token` is the first
    that is not empty. The numbers are those of the limiter that refused, else of the one with the fewest `remaining`.
    `refused_by`: the index of the limiter that refused. `decisions`: those with which the limiters recorded the
    request or refused it; None for limiters that did neither.
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
