"""Limits of rate and concurrency, for views, DRF, jobs and plain code.

from resty_django.limits import LeakyBucket

limiter = LeakyBucket(200, burst=100, prefix="search:")
decision = limiter.hit("192.0.2.1")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .combining import acombine, combine
    from .decision import CombinedDecision, Decision
    from .decorators import limit, limit_conn, limit_count, limit_rate, limit_rate_either, limit_req, limit_window
    from .errors import ForeignData, Limited, LimitError, NotFound, StoreFailed
    from .limiters import Concurrency, FixedWindow, LeakyBucket, Limiter, SlidingWindow, TokenBucket
    from .signals import limited
    from .stores import LocalStore

__all__ = [
    "CombinedDecision",
    "Concurrency",
    "Decision",
    "FixedWindow",
    "ForeignData",
    "LeakyBucket",
    "LimitError",
    "Limited",
    "Limiter",
    "LocalStore",
    "NotFound",
    "SlidingWindow",
    "StoreFailed",
    "TokenBucket",
    "acombine",
    "combine",
    "limit",
    "limit_conn",
    "limit_count",
    "limit_rate",
    "limit_rate_either",
    "limit_req",
    "limit_window",
    "limited",
]

_WHERE: Final = {
    **dict.fromkeys(("acombine", "combine"), "combining"),
    **dict.fromkeys(("CombinedDecision", "Decision"), "decision"),
    **dict.fromkeys(("ForeignData", "LimitError", "Limited", "NotFound", "StoreFailed"), "errors"),
    **dict.fromkeys(("Concurrency", "FixedWindow", "LeakyBucket", "Limiter"), "limiters"),
    **dict.fromkeys(("SlidingWindow", "TokenBucket"), "limiters"),
    "LocalStore": "stores",
    **dict.fromkeys(("limit", "limit_conn", "limit_count", "limit_rate"), "decorators"),
    **dict.fromkeys(("limit_rate_either", "limit_req", "limit_window"), "decorators"),
    "limited": "signals",
}


def __getattr__(name: str) -> Any:
    # Django imports this package before its settings and models are ready, and others may want only a part of it.
    if name in _WHERE:
        found = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
