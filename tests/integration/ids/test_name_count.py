"""The names of a rule are bounded without being counted each time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from resty_django.ids import store
from resty_django.ids.errors import TooManyNames
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.store import CounterStore

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _every_name(settings: object) -> None:
    settings.RESTY_DJANGO = {"IDS": {"NEW_NAMES_PER_SECOND": 0}}  # type: ignore[attr-defined]


def reserve(rule: IdRule, *apps: str) -> None:
    store = CounterStore()
    for app in apps:
        store.reserve(rule.pk, rule.spec(), app, shown=None, want=1)


def count(rule: IdRule) -> int:
    return IdRule.objects.values_list("name_count", flat=True).get(pk=rule.pk)


def test_a_new_name_counts_no_rows(make_rule: Callable[..., IdRule]) -> None:
    rule = make_rule(max_names=500)
    queries = []
    for number in range(3):
        with CaptureQueriesContext(connection) as captured:
            reserve(rule, f"app{number}")
        queries.append([query["sql"] for query in captured])
    assert not any("DISTINCT" in sql or "COUNT(" in sql for sqls in queries for sql in sqls)
    assert count(rule) == 3
    reserve(rule, "app0", "app1")
    assert count(rule) == 3, "names that are known do not count again"


def test_the_bound_is_exact_with_many_at_once(make_rule: Callable[..., IdRule]) -> None:
    rule = make_rule(max_names=7)

    def names(worker: int) -> int:
        refused = 0
        try:
            for number in range(5):
                try:
                    reserve(rule, f"app{worker}-{number}")
                except TooManyNames:
                    refused += 1
        finally:
            connections.close_all()
        return refused

    with ThreadPoolExecutor(4) as pool:
        refused = sum(pool.map(names, range(4)))
    assert (IdCounter.objects.count(), count(rule), refused) == (7, 7, 13)


def test_at_the_bound_nothing_is_counted_for_each_request(
    make_rule: Callable[..., IdRule], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = make_rule(max_names=2)
    reserve(rule, "a", "b")
    counts: list[int] = []

    def noted(alias: str, key: int) -> int:
        counts.append(key)
        return 2

    monkeypatch.setattr(store, "count_names", noted)
    monkeypatch.setattr(store, "MIN_RECOUNT_RATIO", 1e12)
    for number in range(20):
        with pytest.raises(TooManyNames, match="max_names"):
            reserve(rule, f"more{number}")
    assert len(counts) <= 1


def test_names_that_were_deleted_make_room(make_rule: Callable[..., IdRule]) -> None:
    rule = make_rule(max_names=2)
    reserve(rule, "a", "b")
    IdCounter.objects.filter(app_name="a").delete()
    store.next_count.clear()
    reserve(rule, "c")
    assert count(rule) == 2


def test_saving_a_copy_read_earlier_leaves_the_count(make_rule: Callable[..., IdRule]) -> None:
    rule = make_rule()
    stale = IdRule.objects.get()
    reserve(rule, "a", "b")
    stale.description = "edited"
    stale.save()
    assert count(rule) == 2
