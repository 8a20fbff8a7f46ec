"""A flood of keys fills the store: it drops the states that are not used, counts them, and goes on deciding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest
from django.test import override_settings

from resty_django import health
from resty_django.limits import Decision, FixedWindow, LeakyBucket
from resty_django.limits.decorators import limit_count
from resty_django.limits.facts import count_evictions
from resty_django.limits.overview import panel
from resty_django.limits.statistics.reporter import MAX_SERIES, OTHER_LIMITS, stats
from resty_django.metrics.exposition import RestyCollector
from resty_django.shdict import shdicts

from .view_tools import Site

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = 1024 * 1024
MOST = 50_000
"""Keys in a flood that evicts nothing; the small dictionary holds fewer."""
EVICTED = 100


@pytest.fixture
def small_store(limits_site: dict[str, Any]) -> Iterator[None]:
    """The site's dictionary of limits, of the smallest size."""
    shdicts["limits"].close()
    dictionaries = limits_site.get("SHARED_DICTS", {})
    own = {**dictionaries.get("limits", {}), "SIZE": SMALL}
    with override_settings(RESTY_DJANGO={**limits_site, "SHARED_DICTS": {**dictionaries, "limits": own}}):
        yield
        shdicts["limits"].close()


def addresses() -> Iterator[str]:
    return (f"198.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in count())


def flood(limiter: LeakyBucket, hot: FixedWindow) -> int:
    """Hit new keys until the store evicts, and another limit's key all the time. Return the number of hits of it."""
    used = 0
    for number, address in enumerate(islice(addresses(), MOST)):
        assert limiter.hit(address)
        if number % 100 == 0:
            hot.hit("customer")
            used += 1
            if count_evictions() >= EVICTED:
                break
    return used


def findings() -> list[tuple[str, str]]:
    return [(finding.level, finding.subject) for _, finding in health.run(["limits"])]


@pytest.mark.usefixtures("small_store")
def test_a_flood_of_keys_evicts_unused_states_and_is_counted() -> None:
    assert count_evictions() == 0
    assert findings() == [("ok", "limits")]
    assert not any("evicted" in note for note in panel().notes)
    limiter = LeakyBucket(1 / 3600, 5, prefix="flood:", on_error="raise")
    hot = FixedWindow(10**6, 3600, prefix="hot:", on_error="raise")
    used = flood(limiter, hot)
    evictions = count_evictions()
    assert evictions >= EVICTED
    assert hot.peek("customer").remaining == 10**6 - used
    first = next(addresses())
    assert shdicts["limits"].get(f"flood:{first}") is None
    assert findings() == [("warning", "store limits")]
    [finding] = [finding for _, finding in health.run(["limits"])]
    assert f"evicted {evictions:,} items" in finding.message
    [note] = panel().notes
    assert f"{evictions:,} items" in note
    assert shdicts["limits"].stats().forcible == evictions


@pytest.mark.usefixtures("small_store")
def test_the_metrics_count_evictions() -> None:
    flood(LeakyBucket(1 / 3600, 5, prefix="flood:"), FixedWindow(10**6, 3600, prefix="hot:"))
    [family] = [family for family in RestyCollector().collect() if family.name == "resty_dict_evictions"]
    counts = {sample.labels["dict"]: sample.value for sample in family.samples}
    assert counts["limits"] == count_evictions() > 0


@pytest.mark.usefixtures("small_store")
async def test_a_view_goes_on_deciding_during_a_flood(site: Site) -> None:
    view = site.view(limit_count(3, per="1h"))
    flood(LeakyBucket(1 / 3600, 5, prefix="flood:"), FixedWindow(10**6, 3600, prefix="hot:"))
    assert await site.statuses(view, 4) == [200, 200, 200, 429]


@pytest.mark.usefixtures("limits_site")
def test_names_beyond_the_maximum_are_counted_together() -> None:
    """Labels of metrics and lists of the admin cannot grow without a bound either."""
    for number in range(MAX_SERIES + 20):
        stats.record(f"limit {number}", "k", Decision(True))
    stats.flush()
    totals = stats.totals()
    assert len(totals) == MAX_SERIES + 1
    assert totals[OTHER_LIMITS].passed == 20
