"""Evictions: a full store drops the states that were not used for the longest time, and counts them.

A client that forges its address or another part of its key fills the store with states. A key whose state was dropped
counts from zero, so the count belongs to what an operator has to see.
"""

from __future__ import annotations

from resty_django.conf import conf
from resty_django.shdict import shdicts


def count_evictions() -> int:
    """Return the number of items that the store of limits evicted before they expired, since it was created.

    Return 0 if the store does not know it, as on Redis. Raise `SharedDictError`.
    """
    return shdicts[conf.limits.store].quick_stats().forcible or 0
