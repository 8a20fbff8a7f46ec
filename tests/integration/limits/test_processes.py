"""Many processes with one limit: exactly as many requests pass as it says. One is killed: its slots come back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resty_django.limits import Concurrency, FixedWindow, LocalStore
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests import processes
from tests.dictionaries import MIB, Clock
from tests.threads import together

from .crowd import LEASE, NOW

ROOT = Path(__file__).resolve().parents[3]
ENVIRON = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", "PYTHONPATH": str(ROOT)}


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """An engine and where it is; empty."""
    if request.param == "redis":
        request.getfixturevalue("redis_cache")
        return "redis", request.getfixturevalue("valkey_url")
    return "lmdb", str(tmp_path)


def command(act: str, location: tuple[str, str]) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("crowd.py")), act, *location]


def test_exactly_the_limit_passes(location: tuple[str, str]) -> None:
    done = processes.run(
        command("crowd", location), env=ENVIRON, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    passed = json.loads(done.stdout)
    assert passed == dict.fromkeys(passed, 100)
    assert len(passed) == 8


def test_the_slots_of_a_killed_process_come_back(location: tuple[str, str]) -> None:
    with processes.Process(command("hold", location), env=ENVIRON, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "[True, True, True]\n"
        holder.kill()
    clock = Clock(int(NOW) + 0.0005)
    engine, where = location
    store: Any
    store = RedisDict("crowd") if engine == "redis" else LmdbDict("crowd", 8 * MIB, where, clock)
    slots = Concurrency(3, store=store, clock=clock, lease=LEASE, on_error="raise")
    assert not slots.hit("k")
    clock.advance(LEASE - 0.001)
    assert not slots.hit("k")
    clock.advance(0.001)
    assert [slots.hit("k").state for _ in range(4)] == [1, 2, 3, None]
    store.close()


@pytest.mark.parametrize("kind", ["local", "lmdb"])
def test_threads(kind: str, tmp_path: Path) -> None:
    store: Any = LocalStore() if kind == "local" else LmdbDict("threads", 8 * MIB, str(tmp_path))
    count = FixedWindow(100, 3600, store=store)
    passed = []

    def work() -> None:
        passed.append(sum(bool(count.hit("k")) for _ in range(50)))

    together(*[work] * 8)
    assert sum(passed) == 100


def test_a_forked_child_creates_different_tokens() -> None:
    slots = Concurrency(10, store=LocalStore())
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, slots.hit("k").token.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert len({pipe.read(), slots.hit("k").token}) == 2
    os.wait()
