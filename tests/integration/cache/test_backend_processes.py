"""Django's cache in whole processes: what one stores the others see, and sums and first ones are exact."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import caches

from tests.integration.cache.backends import OURS, shared_dicts
from tests.integration.events.conftest import Start, ready, workers_of
from tests.servers import until

WORKER = Path(__file__).with_name("backend_worker.py")


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def wide_site(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a site whose cache is on each engine; L1 keeps what it has for as long as L2 does."""
    ours = {"BACKEND": OURS, "LOCATION": "pages", "TIMEOUT": 1000, "OPTIONS": {"LRU_TTL": 0}}
    caches_of_it: dict[str, Any] = {"default": ours}
    if request.param == "redis":
        request.getfixturevalue("valkey")
        url = request.getfixturevalue("valkey_url")
        caches_of_it["redis"] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}
    return {
        "SECRET_KEY": django_settings.SECRET_KEY,
        "CACHES": caches_of_it,
        "RESTY_DJANGO": {"SHARED_DICTS": shared_dicts(request.param, tmp_path), "EVENTS": {"INTERVAL": 0.01}},
    }


@pytest.fixture
def start(wide_site: dict[str, Any], settings: Any) -> Iterator[Start]:
    """Start a `Worker`; all are ended after the test. This process has the same settings."""
    for name, config in wide_site.items():
        setattr(settings, name, config)
    with workers_of(WORKER, wide_site) as start:
        yield start


def test_other_processes_see_a_stored_value(start: Start) -> None:
    workers = [start("listen") for _ in range(2)]
    ready(workers)
    cache = caches["default"]
    for step, value in (
        (lambda: cache.set("k", "first"), "first"),
        (lambda: cache.set("k", [2]), [2]),
        (lambda: cache.delete("k"), None),
        (lambda: cache.add("k", "added"), "added"),
        (lambda: cache.set("k", 3), 3),
        (lambda: cache.incr("k"), 4),
        (lambda: cache.set("k", "text"), "text"),
        (lambda: cache.touch("k", 0), None),
        (lambda: cache.set_many({"k": "many"}), "many"),
        (lambda: cache.set_many({"j": 1, "k": "of many", "l": 2}), "of many"),
        (lambda: cache.delete_many(["j", "k", "l"]), None),
        (lambda: cache.set_many(dict.fromkeys("jkl", "again")), "again"),
        (lambda: cache.delete_pattern("[j-l]"), None),  # type: ignore[attr-defined]
        (lambda: cache.set("k", "tagged", tags=("x", "y")), "tagged"),  # type: ignore[call-arg]
        (lambda: cache.invalidate_tags("x"), None),  # type: ignore[attr-defined]
        (lambda: cache.set("k", "last"), "last"),
        (lambda: cache.clear(), None),
    ):
        for worker in workers:
            worker.lines.clear()
        step()
        for worker in workers:
            worker.wait_for("now", value)


def test_a_request_sees_earlier_writes(start: Start) -> None:
    cache = caches["default"]
    cache.set("k", 'old"')
    worker = start("requests")
    worker.wait_for("got", 'old"', seconds=60)
    cache.set("k", "new")
    worker.say("")
    worker.wait_for("before", 'old"')
    worker.wait_for("got", "new")


def test_sums_of_many_processes_are_exact(start: Start) -> None:
    cache = caches["default"]
    cache.set("n", 5, None)
    workers = [start("count", times=300, twins=number % 2 == 1) for number in range(4)]
    ready(workers)
    for worker in workers:
        worker.say("")
    for worker in workers:
        worker.wait_for("through", seconds=60)
    assert cache.get("n") == 5 + 4 * 300


def test_one_of_many_processes_adds_a_key(start: Start) -> None:
    workers = [start("race", twins=number % 2 == 1) for number in range(4)]
    ready(workers)
    for number in range(20):
        for worker in workers:
            worker.say(f"key{number}")
    for worker in workers:
        worker.wait_until(lambda worker=worker: len(worker.lines) >= 21)
    for number in range(20):
        winners = [worker.pid for worker in workers for line in worker.lines if line == ["tried", f"key{number}", True]]
        assert len(winners) == 1
        assert caches["default"].get(f"key{number}") == winners[0]


def test_objects_travel_between_processes(start: Start) -> None:
    cache = caches["default"]
    worker = start("objects")
    worker.wait_for("ready", seconds=60)
    cache.set("there", (1, Decimal("2.50")))
    worker.say("there")
    worker.wait_for("got", "(1, Decimal('2.50'))")
    worker.wait_for("stored")
    assert cache.get("back") == {"price": Decimal("1.50")}
    worker.end()


def test_without_events_an_old_copy_lives_for_lru_ttl(start: Start, settings: Any) -> None:
    """A process that hears nothing sees what is new when its copy is over."""
    settings.CACHES = {**settings.CACHES, "default": {**settings.CACHES["default"], "OPTIONS": {"LRU_TTL": 0.5}}}
    cache = caches["default"]
    cache.set("back", "old")
    assert cache.get("back") == "old"
    worker = start("objects")
    worker.wait_for("ready", seconds=60)
    worker.say("x")
    worker.wait_for("stored", seconds=60)
    until(lambda: cache.get("back") != "old", 30)
    assert cache.get("back") == {"price": Decimal("1.50")}


@pytest.mark.parametrize("twins", [False, True])
def test_one_process_loads_a_missing_value(start: Start, twins: bool) -> None:
    workers = [start("load", twins=twins) for _ in range(4)]
    ready(workers)
    for number, key in enumerate(("one", "two")):
        for worker in workers:
            worker.say(key)
        for worker in workers:
            worker.wait_until(lambda worker=worker, count=number + 2: len(worker.lines) >= count)
        assert len({worker.lines[-1][1] for worker in workers}) == 1
        assert caches["default"].get(f"loads-of-{key}") == 1
