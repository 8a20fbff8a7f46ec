"""The decisions on one key in the last hour, with their times: recorded requests, and refusals of other limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import router
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.chart_axes import MINUTE, time_axis
from resty_django.admin.charts import Chart
from resty_django.admin.export import Exportable, Sheet
from resty_django.admin.statistics import Key
from resty_django.admin.tables import Listing, listing
from resty_django.conf import conf
from resty_django.text import printable

from ..models import LimitOverride
from ..overrides.current import COLUMNS, FAULTS, current
from ..overrides.override_set import Override, OverrideSet, override_of
from ..policies import registry
from ..statistics import catalog
from ..statistics.events import DELAYED, PASSED, REFUSED, SHADOWED, Event, Request
from ..statistics.recorder import SPAN, recorder, recording_of_limit, tier_and_key
from ..statistics.reporter import Minute, Totals, stats, summed
from .all_limits import LABELS
from .columns import DECISIONS
from .key_forms import forms_of, has
from .statistics import in_words, series_of

SHOWN: Final = 200
"""The maximum number of decisions in the table."""
OUTCOMES: Final = {PASSED: "passed", DELAYED: "delayed", REFUSED: "refused", SHADOWED: "shadowed"}
OUTCOME_LABELS: Final = {
    PASSED: gettext_lazy("passed"),
    DELAYED: gettext_lazy("delayed"),
    REFUSED: gettext_lazy("refused"),
    SHADOWED: gettext_lazy("would have been refused"),
}
LONGEST_NAME: Final = 200
MOST_ENDED: Final = 500
"""The maximum number of overrides that ended in the last hour and are considered."""


@dataclass(frozen=True, slots=True)
class KeyDecision:
    """A decision. `series`: the limit's name in the statistics. `override`: the one in force at that time, or None."""

    series: str
    request: Request
    override: Override | None = None

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.request.time / 1000, tz=timezone.get_current_timezone())

    @property
    def name(self) -> str:
        return printable(catalog.kind_and_name(self.series)[1], LONGEST_NAME)

    @property
    def kind_label(self) -> Any:
        return LABELS[catalog.kind_and_name(self.series)[0]]

    @property
    def key(self) -> str:
        return Key.of(tier_and_key(self.request.key)[1]).text

    @property
    def tier(self) -> str:
        return printable(tier_and_key(self.request.key)[0], LONGEST_NAME)

    @property
    def target(self) -> str:
        """The method and the route."""
        return printable(self.request.target, LONGEST_NAME)

    @property
    def outcome(self) -> str:
        return OUTCOMES.get(self.request.outcome, "passed")

    @property
    def outcome_label(self) -> Any:
        return OUTCOME_LABELS.get(self.request.outcome, OUTCOME_LABELS[PASSED])

    @property
    def delay(self) -> float | None:
        """The seconds of the delay, or None if the request was not delayed or the delay was not recorded."""
        return None if self.request.delay is None else self.request.delay / 1000

    @property
    def export(self) -> Sequence[Any]:
        rate = "" if self.override is None else self.override.rate
        at = datetime.fromtimestamp(self.request.time / 1000, tz=UTC)
        kind = catalog.kind_and_name(self.series)[0]
        return (at, self.name, kind, self.target, self.key, self.tier, self.outcome, self.delay, rate)


@dataclass(frozen=True, slots=True)
class KeyDecisions:
    """The decisions of the last hour, the most recent first. `minutes`: their counts.

    `sampled`: the names of limits of which only some keys are recorded, with the shares in percent.
    """

    decisions: Sequence[KeyDecision] = ()
    minutes: Sequence[Minute] = ()
    sampled: Sequence[tuple[str, str]] = field(default_factory=list)

    def listing(self, request: HttpRequest) -> Listing[KeyDecision]:
        """Return the table of all decisions, sorted by the URL parameter `o-decisions` and filtered by `find`."""
        columns = [column for column in DECISIONS if column.key != "tier" or self.tiers]
        return listing(request, columns, self.decisions, name="decisions", default="-time")

    @property
    def all_limits(self) -> bool:
        """Whether limits other than policies are recorded."""
        return conf.limits.record_all_limits

    @property
    def policies(self) -> bool:
        """Whether policies are recorded."""
        return conf.limits.record_requests

    @property
    def tiers(self) -> bool:
        """Whether a decision was made by the rate of a tier."""
        return any(decision.tier for decision in self.decisions)

    @property
    def chart(self) -> Chart:
        return Chart(
            _("Decisions"),
            series_of(self.minutes),
            time_axis([minute.start for minute in self.minutes], MINUTE),
            y_label=_("decisions per minute"),
            summary=in_words(summed(self.minutes)),
            table_label=_("By minute"),
            height=120,
            name="key-decisions-by-minute",
        )

    def exports(self, listed: Iterable[KeyDecision]) -> Iterator[Exportable]:
        """Yield the table as `listing` returns it, and the chart of all decisions."""
        if self.decisions:
            columns = ("time", "limit", "kind", "request", "key", "tier", "outcome", "delay_seconds", "override")
            yield Sheet("key-decisions", columns, lambda: (decision.export for decision in listed))
            yield self.chart


def shown_rows(listed: Listing[KeyDecision]) -> Sequence[KeyDecision]:
    """Return the rows that the page shows."""
    return listed.rows[:SHOWN]


def decisions_of(key: str, refusals: Iterable[tuple[str, Event]]) -> KeyDecisions:
    """Return the decisions on a key, in each form in which limits store it, alone or as a part.

    `refusals`: the stored refusals of the key, with the names of their limits in the statistics. They are used for
    limits that have no recorded request of the key. Raise `SharedDictError`.
    """
    recorder.flush()
    forms = forms_of(key)

    def matches(recorded: str) -> bool:
        return recorded == key or has(recorded, forms)

    requests: list[tuple[str, Request]] = []
    sampled: list[tuple[str, str]] = []
    for series, name in _recordings():
        recording = recorder.read_keys(name, matches, (key, *forms))
        requests += [(series, request) for request in recording.requests]
        if recording.level:
            shown = printable(catalog.kind_and_name(series)[1], LONGEST_NAME)
            sampled.append((shown, f"{100 * recording.share:.3g} %"))
    recorded = {series for series, _ in requests}
    oldest = timezone.now().timestamp() * 1000 - SPAN
    others = [(series, Request(*event)) for series, event in refusals if series not in recorded and event[0] >= oldest]
    requests = sorted([*requests, *others], key=lambda item: -item[1].time)
    return KeyDecisions(list(_with_overrides(requests)), _by_minute(requests), sampled)


def _recordings() -> Iterator[tuple[str, str]]:
    """Yield the names of limits and of their recordings."""
    policies = registry.all_policies()
    for policy in policies.values():
        yield policy.name, policy.recording
    if conf.limits.record_all_limits:
        for series in dict.fromkeys((*catalog.counted_limits(), *stats.names())):
            if series not in policies:
                yield series, recording_of_limit(series)


def _with_overrides(requests: Iterable[tuple[str, Request]]) -> Iterator[KeyDecision]:
    """Yield the decisions with the overrides in force at their times, as the rows are now."""
    ended = _ended_overrides()
    roles: dict[str, tuple[str, ...]] = {}
    for series, request in requests:
        if series not in roles:
            roles[series] = _roles(series)
        own, at = tier_and_key(request.key)[1], request.time / 1000
        override = None
        for overrides in (current.get(), ended):
            if override is None and overrides is not None:
                override = overrides.find(series, own, roles[series], at)
        yield KeyDecision(series, request, override)


def _ended_overrides() -> OverrideSet | None:
    """Return the overrides that ended in the last hour. Decisions no longer have them in memory."""
    now = timezone.now()
    rows = LimitOverride.objects.using(router.db_for_write(LimitOverride))
    ended = rows.filter(ends_at__gt=now - timedelta(milliseconds=SPAN), ends_at__lte=now)
    try:
        overrides = [override_of(row) for row in ended.order_by("-ends_at").values_list(*COLUMNS)[:MOST_ENDED]]
        return OverrideSet(overrides, conf.limits.overrides != "all") if overrides else None
    except FAULTS:  # somebody has edited a row by SQL
        return None


def _roles(series: str) -> tuple[str, ...]:
    """Return the roles of the parts of a limit's keys."""
    policy = registry.get_policy(series) if catalog.kind_and_name(series)[0] == catalog.POLICY else None
    if policy is not None:
        return policy.key.roles
    limit = catalog.counted_limit(series)
    return () if limit is None else limit.roles


def _by_minute(requests: Sequence[tuple[str, Request]]) -> list[Minute]:
    """Return the counts of the last hour by minute, with the current minute at the end."""
    last = int(timezone.now().timestamp() // MINUTE)
    counts = {last - back: dict.fromkeys(OUTCOMES.values(), 0) for back in reversed(range(60))}
    for _series, request in requests:
        minute = counts.get(request.time // 1000 // MINUTE)
        if minute is not None and request.outcome in OUTCOMES:
            minute[OUTCOMES[request.outcome]] += 1
    return [Minute(start * MINUTE, Totals(**values)) for start, values in counts.items()]
