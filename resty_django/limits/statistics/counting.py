"""Counting of the decisions of limits that are not policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest

from ..decision import Decision
from .catalog import DescribedLimit, add_limit
from .reporter import stats


class DecisionCounter:
    """Counts the decisions of a limiter, a quota or a rule of bans, and lists it in the catalog.

    `kind`, `name`, `location`, `roles`: see `resty_django.limits.statistics.catalog`. `shadow`: the limit refuses
    nothing. `nodelay`: requests that the limiter would delay pass at once.
    """

    __slots__ = ("_record", "record", "roles", "series")

    def __init__(
        self,
        kind: str,
        name: str,
        limiter: DescribedLimit,
        location: str,
        *,
        shadow: bool = False,
        nodelay: bool = False,
        roles: tuple[str, ...] = (),
    ) -> None:
        self.series = add_limit(kind, name, limiter, location, roles, not shadow)
        """The name under which decisions are counted."""
        self.roles = roles
        self._record = partial(stats.record, self.series, shadow=True) if shadow else partial(stats.record, self.series)
        self.record: Callable[..., None] = self._record_without_delay if nodelay else self._record
        """Counts a decision for a key; `request`: see `StatsReporter.record`."""

    def _record_without_delay(self, key: str, decision: Decision, request: HttpRequest | None = None) -> None:
        self._record(key, decision.replace(delay=0.0) if decision.delay else decision, request=request)
