"""Rate and concurrency limits for views, Django REST framework, jobs and plain code.

from resty_django.limits import LeakyBucket

limiter = LeakyBucket(200, burst=100, prefix="search:")
decision = limiter.hit("192.0.2.1")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resty_django import lazy
from resty_django.callables import deferred
from resty_django.job_limits import provide

from .overrides import readers

if TYPE_CHECKING:
    from .callers.keys import client_address
    from .decision import CombinedDecision, Decision
    from .decorators import limit, limit_conn, limit_count, limit_rate, limit_rate_either, limit_req, limit_window
    from .errors import CostTooHigh, ForeignData, Limited, LimitError, NotFound, StoreFailed, TooManyWaiting
    from .functions import limited
    from .limiters.base import Limiter
    from .limiters.combined import acombine, combine
    from .limiters.concurrency import Concurrency
    from .limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
    from .policies.registry import (
        all_policies,
        aload_policies,
        declare_policy,
        forget_policies,
        get_policy,
        matching_policies,
        refresh_policies,
        withdraw_policy,
    )
    from .quotas.decorators import quota
    from .quotas.quota import Quota, Usage
    from .quotas.registry import all_quotas, forget_quotas
    from .quotas.usage import ausage, usage
    from .refusals import call_refused, request_refused
    from .specs.policy_validation import BadPolicy
    from .statistics.reporter import stats
    from .stores import LocalStore
    from .stores.circuit_breaker import current_outages

__all__ = [
    "BadPolicy",
    "CombinedDecision",
    "Concurrency",
    "CostTooHigh",
    "Decision",
    "FixedWindow",
    "ForeignData",
    "LeakyBucket",
    "LimitError",
    "Limited",
    "Limiter",
    "LocalStore",
    "NotFound",
    "Quota",
    "SlidingWindow",
    "StoreFailed",
    "TokenBucket",
    "TooManyWaiting",
    "Usage",
    "acombine",
    "all_policies",
    "all_quotas",
    "aload_policies",
    "ausage",
    "call_refused",
    "client_address",
    "combine",
    "current_outages",
    "declare_policy",
    "forget_policies",
    "forget_quotas",
    "get_policy",
    "limit",
    "limit_conn",
    "limit_count",
    "limit_rate",
    "limit_rate_either",
    "limit_req",
    "limit_window",
    "limited",
    "matching_policies",
    "quota",
    "refresh_policies",
    "request_refused",
    "stats",
    "usage",
    "withdraw_policy",
]


provide(deferred(f"{__name__}.jobs.job_limit"))
readers.extend(deferred(f"{__name__}.policies.registry.{name}") for name in ("all_policies", "aload_policies"))

# Django imports this package before its settings and models are ready, so the modules are imported on first use.
__getattr__ = lazy.members(
    __name__,
    {
        "decision": "CombinedDecision Decision",
        "decorators": "limit limit_conn limit_count limit_rate limit_rate_either limit_req limit_window",
        "callers.keys": "client_address",
        "errors": "CostTooHigh ForeignData LimitError Limited NotFound StoreFailed TooManyWaiting",
        "limiters.base": "Limiter",
        "limiters.combined": "acombine combine",
        "limiters.concurrency": "Concurrency",
        "limiters.rate": "FixedWindow LeakyBucket SlidingWindow TokenBucket",
        "policies.registry": "aload_policies all_policies declare_policy forget_policies get_policy matching_policies "
        "refresh_policies withdraw_policy",
        "specs.policy_validation": "BadPolicy",
        "functions": "limited",
        "quotas.decorators": "quota",
        "quotas.quota": "Quota Usage",
        "quotas.registry": "all_quotas forget_quotas",
        "quotas.usage": "ausage usage",
        "refusals": "call_refused request_refused",
        "statistics.reporter": "stats",
        "stores": "LocalStore",
        "stores.circuit_breaker": "current_outages",
    },
)
