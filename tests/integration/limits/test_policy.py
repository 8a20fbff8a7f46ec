"""Policies change while the site runs: at once in this process, within a moment in all others.

Private names: `registry._policies`, since each public look-up would itself check for the change that the thread must
find, and since the number of remembered matches shows in memory alone.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.http import HttpResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import ResolverMatch

from resty_django.events import runtime as events
from resty_django.limits import LeakyBucket
from resty_django.limits.models import LimitPolicy
from resty_django.limits.overrides.current import current
from resty_django.limits.policies import registry
from resty_django.limits.policies.invalidation import announce
from resty_django.limits.policies.policy_set import MAX_REMEMBERED
from resty_django.limits.specs.policy_validation import BadPolicy
from resty_django.processes.background import background
from tests.integration.limits.policy_tools import Worker, breakable, make_policy, policy_of
from tests.integration.limits.view_tools import change
from tests.servers import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.usefixtures("limits_site"),
]

WITHIN = 0.1
"""Seconds in which a change acts in the other processes."""


def limit(name: str = "pay") -> int | None:
    policy = registry.get_policy(name)
    return policy.spec.limit if policy is not None else None


@pytest.fixture
def broken() -> Iterator[Callable[[bool], None]]:
    with breakable("limitpolicy") as change:
        yield change


# --- where policies come from ------------------------------------------------------------------------------------


def test_the_database_takes_the_place_of_what_code_declares() -> None:
    registry.declare_policy("pay", "fixed_window", limit=5, window="1min", key="ip")
    registry.declare_policy("other", "leaky_bucket", rate="2/s")
    assert limit() == 5
    assert not registry.all_policies()["pay"].stored
    row = make_policy(limit=7)
    assert limit() == 7
    assert registry.all_policies()["pay"].stored
    assert isinstance(registry.all_policies()["other"].limiter, LeakyBucket)
    row.delete()
    assert limit() == 5
    registry.withdraw_policy("pay")
    assert registry.get_policy("pay") is None


def test_a_declaration_that_is_wrong_is_refused() -> None:
    with pytest.raises(BadPolicy, match="'pay': window"):
        registry.declare_policy("pay", "fixed_window", limit=5)
    assert registry.get_policy("pay") is None


def test_a_late_declaration_takes_effect() -> None:
    assert registry.get_policy("pay") is None
    registry.declare_policy("pay", "fixed_window", limit=5, window="1min")
    assert limit() == 5


# --- changes in this process ---------------------------------------------------------------------------------------


def test_a_change_has_taken_effect_when_its_commit_returns_and_none_after_a_rollback() -> None:
    row = make_policy()
    assert limit() == 3
    row.limit = 8
    with transaction.atomic():
        row.save()
        assert limit() == 3
    assert limit() == 8
    row.limit = 9
    with transaction.atomic():
        row.save()
        transaction.set_rollback(True)
    assert limit() == 8
    row.delete()
    assert limit() is None


def test_changed_numbers_keep_the_state_and_another_algorithm_starts_with_none() -> None:
    row = make_policy(algorithm="leaky_bucket", rate="1/h", burst=1)
    ask = lambda: bool(registry.all_policies()["pay"].limiter.hit("k"))  # noqa: E731
    assert [ask() for _ in range(3)] == [True, True, False]
    row.burst = 3
    row.save()
    assert [ask() for _ in range(3)] == [True, True, False]
    row.algorithm, row.rate, row.burst, row.limit, row.window = "fixed_window", "", None, 1, "1h"
    row.save()
    assert [ask() for _ in range(2)] == [True, False]


def test_policies_do_not_share_their_state() -> None:
    make_policy(limit=1)
    make_policy("other", limit=1)
    assert [bool(policy.limiter.hit("k")) for policy in registry.all_policies().values()] == [True, True]


def test_an_unchanged_policy_stays_the_same_object() -> None:
    row = make_policy()
    make_policy("other")
    before = registry.all_policies()
    row.limit = 9
    row.save()
    after = registry.all_policies()
    assert after["other"] is before["other"]
    assert after["pay"] is not before["pay"]


def test_a_decision_needs_no_query_and_no_lock() -> None:
    make_policy(path="*")
    assert limit() == 3
    request = RequestFactory().get("/")
    with ThreadPoolExecutor(1) as executor:  # a look at the database that does not end
        executor.submit(registry.refresh_lock.acquire).result()
        with CaptureQueriesContext(connection) as queries:
            for _ in range(10):
                assert limit() == 3
                assert len(registry.matching_policies(request, None)) == 1
        executor.submit(registry.refresh_lock.release).result()
    assert len(queries) == 0


def test_each_save_has_another_version() -> None:
    row = make_policy()
    row.save()
    row.save(update_fields=["limit"])
    assert row.version == LimitPolicy.objects.get().version == 3


# --- which apply to a request ----------------------------------------------------------------------------------------


def view(request: Any) -> HttpResponse:
    return HttpResponse()


def test_matching_policies_are_in_order_without_policies_that_are_off() -> None:
    make_policy("late", path="/shop/*", order=5)
    make_policy("early", route="shop:*", order=-1, mode="shadow")
    make_policy("middle", view=f"{__name__}.view", methods="GET")
    make_policy("off", path="*", mode="off")
    make_policy("post", path="*", methods="POST")
    make_policy("named-only")
    match = ResolverMatch(view, (), {}, "pay", namespaces=["shop"])
    policies = registry.matching_policies(RequestFactory().get("/shop/pay"), match)
    assert [policy.name for policy in policies] == ["early", "middle", "late"]
    assert [policy.mode for policy in policies] == ["shadow", "enforce", "enforce"]
    off = policy_of("off")
    assert off.mode == "off"


def test_remembered_matches_differ_by_path_method_and_name_of_the_view() -> None:
    make_policy("paths", path="/shop/*")
    make_policy("names", route="shop:*")
    make_policy("posts", path="*", methods="POST")
    factory = RequestFactory()

    def names(request: Any, name: str) -> list[str]:
        match = ResolverMatch(view, (), {}, name)
        return [policy.name for policy in registry.matching_policies(request, match)]

    for _ in range(2):  # the second time, they are remembered
        assert names(factory.get("/shop/"), "home") == ["paths"]
        assert names(factory.get("/shop/"), "shop:pay") == ["names", "paths"]
        assert names(factory.post("/shop/"), "home") == ["paths", "posts"]
        assert names(factory.get("/"), "home") == []
    LimitPolicy.objects.get(name="paths").delete()
    assert names(factory.get("/shop/"), "home") == []
    for number in range(MAX_REMEMBERED + 50):
        assert names(factory.get(f"/{number}"), "home") == []
    assert names(factory.post("/" + "x" * 1000), "home") == ["posts"]
    policy_set = registry._policies
    assert policy_set is not None
    assert len(policy_set.remembered) <= MAX_REMEMBERED
    assert max(len(path) for path, _, _ in policy_set.remembered) < 1000


def test_views_with_the_same_name_are_told_apart_by_their_function() -> None:
    make_policy("function", view=f"{__name__}.view")
    request = RequestFactory().get("/shop/")
    for function, names in ((view, ["function"]), (limit, []), (view, ["function"])):
        policies = registry.matching_policies(request, ResolverMatch(function, (), {}, "pay"))
        assert [policy.name for policy in policies] == names


# --- changes without an event ----------------------------------------------------------------------------------------


def test_a_change_without_an_event_is_found_at_the_next_check() -> None:
    with override_settings(RESTY_DJANGO={"LIMITS": {"REFRESH": 0.05}}):
        make_policy()
        assert limit() == 3
        LimitPolicy.objects.update(limit=4)
        assert eventually(lambda: limit() == 4)


def test_a_wrong_row_leaves_the_previous_policy_in_force(caplog: pytest.LogCaptureFixture) -> None:
    make_policy()
    make_policy("other")
    assert limit() == 3
    with caplog.at_level(logging.ERROR, "resty_django.limits"):
        LimitPolicy.objects.filter(name="pay").update(window="soon")
        LimitPolicy.objects.filter(name="other").update(limit=4)
        registry.refresh_policies()
        registry.refresh_policies()
    assert limit() == 3
    assert limit("other") == 4
    assert "is not a duration" in registry.policy_faults()["pay"]
    assert len([record for record in caplog.records if "stays in force" in record.message]) == 1
    registry.forget_policies()
    assert registry.get_policy("pay") is None
    registry.declare_policy("pay", "fixed_window", limit=6, window="1h")
    assert limit() == 6
    LimitPolicy.objects.filter(name="pay").update(window="1h")
    registry.refresh_policies()
    assert limit() == 3
    assert registry.policy_faults() == {}


def test_the_last_policies_stay_in_force_while_the_database_is_down(
    broken: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    row = make_policy()
    assert limit() == 3
    broken(True)
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        assert not registry.refresh_policies()
        assert not registry.refresh_policies()
        assert limit() == 3
        registry.declare_policy("late", "fixed_window", limit=1, window="1s")
        assert limit("late") == 1
        broken(False)
        row.limit = 4
        row.save()
    assert limit() == 4
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_process_that_starts_without_a_database_has_what_code_declares(
    broken: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    make_policy()
    registry.declare_policy("late", "fixed_window", limit=1, window="1s")
    registry.forget_policies()
    broken(True)
    assert limit() is None
    assert limit("late") == 1
    broken(False)
    registry.refresh_soon()
    assert eventually(lambda: limit() == 3)


async def test_the_first_use_in_an_event_loop() -> None:
    await sync_to_async(make_policy)()
    assert not registry.is_loaded()
    assert limit() == 3
    registry.forget_policies()
    await registry.aload_policies()
    assert registry.is_loaded()
    assert limit() == 3


# --- other processes ----------------------------------------------------------------------------------------------


def test_an_event_makes_a_process_check_for_changes() -> None:
    make_policy()
    assert limit() == 3
    events.start()
    LimitPolicy.objects.update(limit=4)
    announce("pay")
    assert eventually(lambda: limit() == 4)
    assert background.running


def test_events_that_fail_do_not_undo_a_change(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {"events": {"PATH": "/proc/nowhere"}}}
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        make_policy()
    assert limit() == 3
    assert "until their next refresh" in caplog.text


def heard_within(others: list[Worker], changes: int) -> list[float]:
    """Seconds from a change in this process until each of the others acts by it."""
    row = make_policy(limit=1000)
    for process in others:
        process.wait_for(lambda line: line[:2] == ["watch", 1000])
    times = []
    for number in range(changes):
        row.limit = number + 1
        before = time.time()
        row.save()
        for process in others:
            line = process.wait_for(lambda line, number=number: line[:2] == ["watch", number + 1])
            times.append(line[2] - before)
    return times


@pytest.mark.e2e
def test_a_change_reaches_other_processes_in_time(worker: Callable[..., Worker]) -> None:
    others = [worker("watch", name="pay") for _ in range(2)]
    assert statistics.median(heard_within(others, 15)) < WITHIN


@pytest.mark.e2e
@pytest.mark.redis
def test_a_change_reaches_other_processes_in_time_over_redis(
    redis_cache: str, settings: Any, worker: Callable[..., Worker]
) -> None:
    settings.RESTY_DJANGO = {
        **settings.RESTY_DJANGO,
        "SHARED_DICTS": {name: {"ENGINE": "redis", "ALIAS": "default"} for name in ("default", "events", "limits")},
    }
    others = [worker("watch", settings.CACHES, name="pay") for _ in range(2)]
    assert statistics.median(heard_within(others, 15)) < WITHIN


@pytest.mark.e2e
def test_a_child_of_a_fork_hears_of_changes_and_counts_for_itself(worker: Callable[..., Worker]) -> None:
    from resty_django.limits.statistics import reporter

    row = make_policy()
    forked = worker("fork", name="pay")
    forked.wait_for(lambda line: line[:2] == ["child", 3])
    row.limit = 4
    row.save()
    forked.wait_for(lambda line: line[:2] == ["child", 4])
    forked.finish()
    assert ["child ended"] in forked.lines
    assert reporter.stats.totals()["pay"].passed == 6


LOOKUPS: list[Callable[[], object]] = [
    lambda: registry.get_policy("pay"),
    lambda: registry.policies_for(RequestFactory().get("/"), None),
    registry.all_policies,
    registry.policy_faults,
    lambda: current.find("pay", "192.0.2.1", ()),
]


@pytest.mark.parametrize("look", LOOKUPS, ids=["policy", "request", "all", "faults", "override"])
def test_a_forked_child_looks_for_changes_even_if_another_part_starts_its_thread(
    settings: Any, look: Callable[[], object]
) -> None:
    change(settings, REFRESH=0.1, OVERRIDES="all")
    make_policy()
    assert limit() == 3
    background.stop()  # a fork during its query would leave a lock of SQLite held in the child
    connections.close_all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of any fork with threads
        child = os.fork()
    if not child:
        try:
            background.run_soon(background.add(lambda: 60.0))
            look()
            LimitPolicy.objects.update(limit=4)  # without an event
            os._exit(0 if eventually(lambda: registry._policies.policies["pay"].spec.limit == 4, 10) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
