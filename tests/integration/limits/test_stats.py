"""Figures of limits: counted in each process, summed in the shared dictionary, nothing lost."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable

import pytest

from resty_django.limits import Decision
from resty_django.limits.policies import registry
from resty_django.limits.statistics import reporter
from resty_django.limits.statistics.reporter import MAX_SERIES, OTHER_LIMITS, StatsReporter, Totals
from resty_django.minute_series.top_keys import FrequentKey
from resty_django.shdict import SharedDict, Unavailable
from tests.dictionaries import Clock
from tests.integration.limits.policy_tools import Worker, make_policy
from tests.servers import eventually

PASSED, DELAYED = Decision(True), Decision(True, delay=0.5)
REFUSED, FAILED = Decision(False), Decision(True, failed=True)


@pytest.fixture
def figures(dictionary: SharedDict, clock: Clock) -> StatsReporter:
    """Figures on a dictionary of each engine, under the clock of the test; handed in by `flush` alone."""
    return StatsReporter(lambda: dictionary, clock)


def test_decisions_are_counted_by_their_kind(figures: StatsReporter) -> None:
    for decision in (PASSED, PASSED, DELAYED, REFUSED, FAILED, Decision(True, delay=0.0001)):
        figures.record("a", "k", decision)
    figures.record("a", "k", REFUSED, True)
    figures.record("b", "k", PASSED)
    assert figures.flush()
    assert figures.totals() == {"a": Totals(4, 1, 1, 1, 1), "b": Totals(1)}
    assert figures.history("a").hour == Totals(4, 1, 1, 1, 1)
    assert figures.history("a").minutes[-1].counts.all == 7


def test_several_processes_are_summed(dictionary: SharedDict, clock: Clock) -> None:
    both = [StatsReporter(lambda: dictionary, clock) for _ in range(2)]
    for number, reporter_of_process in enumerate(both):
        for _ in range(10 * (number + 1)):
            reporter_of_process.record("a", f"k{number}", REFUSED)
    assert all(reporter_of_process.flush() for reporter_of_process in both)
    for reporter_of_process in both:
        assert reporter_of_process.totals() == {"a": Totals(refused=30)}
        assert reporter_of_process.top("a") == [FrequentKey("k1", 20), FrequentKey("k0", 10)]


def test_minutes_go_by_and_totals_stay(figures: StatsReporter, clock: Clock) -> None:
    for number in range(3):
        for _ in range(number + 1):
            figures.record("a", "k", PASSED)
        figures.flush()
        clock.advance(60)
    assert [minute.counts.passed for minute in figures.history("a").minutes][-5:] == [0, 1, 2, 3, 0]
    assert len(figures.history("a").minutes) == 60
    clock.advance(58 * 60)
    assert figures.history("a").hour == Totals(3)
    clock.advance(120)
    assert figures.history("a").hour == Totals()
    assert figures.totals() == {"a": Totals(6)}
    figures.record("a", "k", PASSED)
    figures.flush()
    assert figures.totals() == {"a": Totals(7)}


def test_keys_of_the_last_hour_are_listed_and_older_ones_forgotten(figures: StatsReporter, clock: Clock) -> None:
    for _ in range(3):
        figures.record("a", "old", REFUSED)
    figures.flush()
    clock.advance(1800)
    figures.record("a", "new", REFUSED)
    figures.flush()
    assert figures.top("a") == [FrequentKey("old", 3), FrequentKey("new", 1)]
    clock.advance(2400)
    assert figures.top("a") == [FrequentKey("new", 1)]
    clock.advance(3600)
    assert figures.top("a") == []


def test_very_many_keys_take_a_fixed_room(figures: StatsReporter, dictionary: SharedDict) -> None:
    for number in range(5000):
        figures.record("a", f"{number:x}" * 400, REFUSED)
        if number % 5 == 0:
            figures.record("a", "often", REFUSED)
    assert len(figures.tallies["a"].top) <= 8 * reporter.TOP_KEYS
    figures.flush()
    top = figures.top("a")
    assert top[0].key == "often"
    assert len(top) == reporter.TOP_KEYS
    assert max(len(entry.key) for entry in top) <= reporter.MAX_KEY_CHARS
    assert figures.totals()["a"].refused == 6000


def test_very_many_names_are_counted_together(figures: StatsReporter) -> None:
    for number in range(MAX_SERIES + 20):
        figures.record(f"n{number}", "k", PASSED)
    figures.flush()
    totals = figures.totals()
    assert len(totals) <= MAX_SERIES + 1
    assert sum(counts.passed for counts in totals.values()) == MAX_SERIES + 20
    assert totals[OTHER_LIMITS].passed == 20


def test_a_store_that_is_down_loses_nothing(
    dictionary: SharedDict, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    down = True

    def find() -> SharedDict:
        if down:
            raise Unavailable("away")
        return dictionary

    figures = StatsReporter(find, clock)
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        for _ in range(3):
            figures.record("a", "k", REFUSED)
            assert not figures.flush()
        with pytest.raises(Unavailable):
            figures.totals()
        down = False
        figures.record("a", "k", REFUSED)
        assert figures.flush()
    assert figures.totals() == {"a": Totals(refused=4)}
    assert figures.top("a") == [FrequentKey("k", 4)]
    assert len(caplog.records) == 1


def test_foreign_data_under_our_keys_does_no_harm(figures: StatsReporter, dictionary: SharedDict) -> None:
    dictionary.set("resty:stats:counts2:a", "not ours")
    dictionary.set("resty:stats:names", 7)
    figures.record("a", "k", PASSED)
    figures.flush()
    assert figures.totals() == {"a": Totals(1)}


def test_threads_lose_nothing_while_figures_are_handed_in(figures: StatsReporter) -> None:
    def some() -> None:
        for number in range(4000):
            figures.record("a", f"k{number % 5}", REFUSED if number % 2 else PASSED)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=some) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            figures.flush()
    finally:
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switching)
    figures.flush()
    assert figures.totals() == {"a": Totals(passed=8000, refused=8000)}
    assert sum(entry.times for entry in figures.top("a")) == 8000


def test_counting_is_quick(figures: StatsReporter) -> None:
    """About half a microsecond; the bound allows for a machine that does other things, and takes its best time."""
    record = figures.record
    record("a", "k", PASSED)
    gc.disable()
    try:
        times = []
        for _ in range(20):
            started = time.perf_counter()
            for _ in range(2000):
                record("a", "k", PASSED)
            times.append((time.perf_counter() - started) / 2000)
    finally:
        gc.enable()
    assert min(times) < 3e-6


# --- the figures of a site ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("limits_site")
class TestSite:
    def test_counts_are_flushed_automatically(self) -> None:
        reporter.stats.record("plain", "k", REFUSED)
        assert eventually(lambda: reporter.stats.totals().get("plain") == Totals(refused=1))

    @pytest.mark.django_db(transaction=True)
    def test_policies_count_under_their_name_and_shadows_apart(self) -> None:
        row = make_policy(limit=1)
        for _ in range(2):
            policy = registry.get_policy("pay")
            assert policy is not None
            for _ in range(2):
                policy.record("k", policy.limiter.hit("k"))
            row.mode = "shadow"
            row.save()
        reporter.stats.flush()
        assert reporter.stats.totals() == {"pay": Totals(passed=1, refused=1, shadowed=2)}

    @pytest.mark.e2e
    def test_processes_that_end_hand_in_what_they_counted(self, worker: Callable[..., Worker]) -> None:
        others = [worker("count", name="pay", passed=1500, refused=300) for _ in range(2)]
        for process in others:
            process.wait_for(lambda line: line == ["counted"])
            assert process.finish() == ""
        assert reporter.stats.totals() == {"pay": Totals(passed=6000, refused=1200)}
        assert [(entry.times, entry.error) for entry in reporter.stats.top("pay")] == [(400, 0)] * 3
        assert {event.key for event in reporter.stats.refusals("pay")} == {"k0", "k1", "k2"}
