"""Rate limit for the jobs of a class across all workers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .policy_limit import Limit


class Rate:
    """Limits jobs to `rate`: a text such as "10/m", or the name of a policy of `resty_django.limits`.

    `name`: the key under which they are counted. Jobs are spread evenly. A job that would have to wait longer than a
    second is requeued for later.
    """

    def __init__(self, rate: str | float, name: str) -> None:
        from resty_django.limits.statistics.catalog import caller

        self.rate = rate
        self.name = name
        self._location = caller()
        self._limit: Limit | None = None

    def __call__(self, job: Any) -> Generator[None, None, None]:
        if self._limit is None:
            self._limit = self._make_limit()
        return self._limit(job)  # type: ignore[return-value]

    def _make_limit(self) -> Limit:
        from resty_django.limits import LeakyBucket
        from resty_django.limits.limiters.units import parse_rate

        def key(job: Any) -> str:
            return self.name

        if isinstance(self.rate, str) and "/" not in self.rate and " per " not in self.rate:
            return Limit(self.rate, key, location=self._location)
        rate = parse_rate(self.rate)
        return Limit(LeakyBucket(rate, burst=rate, prefix="qless:", name=self.name), key, location=self._location)
