"""What a limiter says of a request. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """The answer of one limiter; true where the request may go on.

    `delay`: seconds to wait before going on, 0 where refused. `state`: excess in requests (leaky bucket), number left
    (windows), number in progress (concurrency) or tokens left (token bucket) after this request, None where it is
    refused. `limit`: what is shown as the limit. `remaining`: how many more requests would pass at this instant, never
    negative; of a token bucket how many need not wait. `reset_after`: seconds until the key is as if never used, 0 for
    concurrency. `retry_after`: where refused, seconds after which it would pass if nobody else came; else 0. `failed`:
    the store could not be used, and `on_error` decided. `token`: names the slot that was taken, for `leaving`.
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


class CombinedDecision(NamedTuple):
    """The answer of several limiters together; true where all let the request go on.

    The fields of `Decision`: `delay` is the longest, `failed` tells that one of them failed, `token` is the first that
    is not empty. The numbers are those of the limiter that refused, else of the one with the fewest `remaining`.
    `refused_by`: the index of the limiter that refused. `decisions`: what each said when it recorded the request or
    refused it; None for those that did not come to that.
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


__all__ = ["CombinedDecision", "Decision"]
