"""Quotas in many processes, some of which are killed: the limit is never exceeded, and little is counted too much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from resty_django.limits import Quota, forget_quotas
from resty_django.limits.models import QuotaUsage
from resty_django.shdict import shdicts
from tests import processes
from tests.dictionaries import ALIAS

from .quota_worker import quota

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("quota_worker.py")
LIMIT = 1000
BLOCK = LIMIT // 100


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of a site with an empty store of limits on each engine."""
    dicts: dict[str, Any] = {"limits": {"PATH": str(tmp_path / "dicts")}}
    site: dict[str, Any] = {"RESTY_DJANGO": {"SHARED_DICTS": dicts}}
    if request.param == "redis":
        request.getfixturevalue("redis_cache")
        dicts["limits"] = {"ENGINE": "redis", "ALIAS": ALIAS}
        cache = {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": request.getfixturevalue("valkey_url"),
        }
        site["CACHES"] = {"default": cache, ALIAS: cache}
    forget_quotas()
    with override_settings(**site):
        yield site
        shdicts.close_all()
    forget_quotas()


class Worker:
    """A process of `quota_worker`."""

    def __init__(self, what: str, site: dict[str, Any], limit: int = LIMIT) -> None:
        self.process = processes.Process(
            [sys.executable, str(WORKER), what, str(limit)],
            env={
                **os.environ,
                "RESTY_DB_NAME": str(connection.settings_dict["NAME"]),
                "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
                "RESTY_WORKER_SITE": json.dumps(site),
            },
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> list[Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        return list(json.loads(text)) if text.endswith("\n") else []

    def begin(self) -> None:
        assert self.line() == ["ready"]
        self.go()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def step(self) -> list[Any]:
        self.go()
        return self.line()

    def passed(self, most: int = LIMIT + 1) -> int:
        """How many units passed, until it is refused, or killed, or `most` have passed."""
        count = 0
        while count < most and self.line() == ["passed"]:
            count += 1
        return count

    def kill(self) -> int:
        """Kill the process, and return how many further units passed."""
        self.process.kill()
        self.process.wait(30)
        return self.passed()

    def close(self) -> None:
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def begun(count: int, site: dict[str, Any]) -> list[Worker]:
    workers = [Worker("use", site) for _ in range(count)]
    for worker in workers:
        worker.begin()
    return workers


def finish(exports: Quota) -> int:
    """Use what is left, and return it."""
    left = 0
    while exports.use("k"):
        left += 1
    return left


def test_exactly_the_limit_passes_in_four_processes(site: dict[str, Any]) -> None:
    workers = begun(4, site)
    counts = [worker.passed() for worker in workers]
    for worker in workers:
        worker.close()
    assert sum(counts) == LIMIT
    assert QuotaUsage.objects.get().used == LIMIT
    assert not quota(LIMIT).use("k")


def test_a_killed_process_loses_at_most_one_block(site: dict[str, Any]) -> None:
    passed, kills = 0, 6
    for number in range(kills):
        worker = Worker("use", site)
        worker.begin()
        passed += worker.passed(17 * number + 1)
        passed += worker.kill()
        worker.close()
    passed += finish(quota(LIMIT))
    assert passed <= LIMIT
    assert LIMIT - passed <= kills * BLOCK


def test_a_process_that_is_killed_while_it_reserves_loses_one_block(site: dict[str, Any]) -> None:
    worker = Worker("stop", site)
    assert worker.line() == ["reserved", BLOCK]
    worker.kill()
    worker.close()
    exports = quota(LIMIT)
    assert exports.usage("k").used == BLOCK
    assert finish(exports) == LIMIT - BLOCK


def test_after_a_reboot_at_most_a_block_is_missing(site: dict[str, Any]) -> None:
    workers = begun(3, site)
    passed = sum(worker.passed(40) for worker in workers)
    passed += sum(worker.kill() for worker in workers)
    for worker in workers:
        worker.close()
    shdicts["limits"].flush_all()
    passed += finish(quota(LIMIT))
    assert passed <= LIMIT
    # A block, in the store or in the hands of one process, and the last unit of each process, which it did not report.
    assert LIMIT - passed <= BLOCK + len(workers)


def test_a_reset_while_two_processes_reserve_blocks(site: dict[str, Any]) -> None:
    workers = begun(2, site)
    passed = sum(worker.passed(60) for worker in workers)
    before = quota(LIMIT).reset("k")
    passed += sum(worker.passed(2 * LIMIT) for worker in workers)
    for worker in workers:
        worker.close()
    passed += finish(quota(LIMIT))
    assert QuotaUsage.objects.get().used == LIMIT
    # The block in the store is dropped, or it is used uncounted until the reset has reached the store.
    assert abs(passed - (before + LIMIT)) <= BLOCK + len(workers)


def test_a_grant_while_two_processes_reserve_blocks(site: dict[str, Any]) -> None:
    workers = begun(2, site)
    passed = sum(worker.passed(60) for worker in workers)
    assert quota(LIMIT).grant("k", 200) == 200
    passed += sum(worker.passed(2 * LIMIT) for worker in workers)
    for worker in workers:
        worker.close()
    # A worker that was refused during the grant may have stored that; the clock, and so the refusal, stands still.
    quota(LIMIT).grant("k", 1)
    assert passed + finish(quota(LIMIT)) == LIMIT + 201


def test_a_process_that_is_killed_while_it_reserves_loses_nothing_after_a_reset(site: dict[str, Any]) -> None:
    worker = Worker("stop", site)
    assert worker.line() == ["reserved", BLOCK]
    exports = quota(LIMIT)
    assert exports.reset("k") == BLOCK
    worker.kill()
    worker.close()
    assert exports.usage("k").used == 0
    assert finish(exports) == LIMIT


def test_a_process_with_another_store_uses_at_most_its_block_after_a_reset(
    site: dict[str, Any], tmp_path: Path
) -> None:
    elsewhere = {**site, "RESTY_DJANGO": {"SHARED_DICTS": {"limits": {"PATH": str(tmp_path / "elsewhere")}}}}
    worker = Worker("step", elsewhere)
    assert worker.line() == ["ready"]
    assert worker.step() == ["passed"]
    assert quota(LIMIT).reset("k") == BLOCK
    passed = 0
    while worker.step() == ["passed"]:
        passed += 1
    worker.kill()
    worker.close()
    assert passed == BLOCK - 1 + LIMIT
