"""Each engine compared with a plain model, in any order of calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import MIB, Clock

from .machine import Machine

SHORT = settings(max_examples=12, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(SHORT, max_examples=1500, stateful_step_count=100)


def run(make: Callable[[], SharedDict], clock: Clock, how: settings) -> None:
    run_state_machine_as_test(lambda: Machine(make, clock), settings=how)


@pytest.fixture
def lmdb(tmp_path: Path, clock: Clock) -> Callable[[], SharedDict]:
    numbers = itertools.count()

    def make() -> SharedDict:
        for old in tmp_path.glob("*"):
            old.unlink()
        return LmdbDict(f"machine{next(numbers)}", 8 * MIB, str(tmp_path), clock)

    return make


@pytest.fixture
def redis(redis_cache: str, clock: Clock) -> Callable[[], SharedDict]:
    numbers = itertools.count()
    return lambda: RedisDict(f"machine{next(numbers)}", alias=redis_cache, clock=clock, stale=1e6)


def test_lmdb_matches_the_model(lmdb: Callable[[], SharedDict], clock: Clock) -> None:
    run(lmdb, clock, SHORT)


@pytest.mark.redis
def test_redis_matches_the_model(redis: Callable[[], SharedDict], clock: Clock) -> None:
    run(redis, clock, SHORT)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_lmdb_matches_the_model_for_long(lmdb: Callable[[], SharedDict], clock: Clock) -> None:
    run(lmdb, clock, LONG)


@pytest.mark.soak
@pytest.mark.redis
@pytest.mark.timeout(1200)
def test_redis_matches_the_model_for_long(redis: Callable[[], SharedDict], clock: Clock) -> None:
    run(redis, clock, LONG)
