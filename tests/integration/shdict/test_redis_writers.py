"""Concurrent writers on the Redis engine (threads, loops, processes): no write is lost or made twice."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from resty_django.shdict import Update
from resty_django.shdict.redis import RedisDict
from tests import processes
from tests.threads import together

pytestmark = pytest.mark.redis
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def shared(redis_cache: str) -> RedisDict:
    return RedisDict("writers", alias=redis_cache)


def test_counts_of_four_threads_are_exact(shared: RedisDict) -> None:
    start = 2**62
    shared.set("n", start)

    def count() -> None:
        for _ in range(300):
            shared.incr("n", 3)
            shared.incr("f", 0.25, init=0.0)

    together(*[count] * 4)
    assert shared.get("n") == start + 3600
    assert shared.get("f") == 300.0


def test_counts_of_threads_and_loops_are_exact(shared: RedisDict) -> None:
    async def acount() -> None:
        await asyncio.gather(*(shared.aincr("n", 1, init=0) for _ in range(200)))

    def count() -> None:
        for _ in range(200):
            shared.incr("n", 1, init=0)

    together(count, count, lambda: asyncio.run(acount()), lambda: asyncio.run(acount()))
    assert shared.get("n") == 800


def test_updates_that_conflict_lose_nothing(shared: RedisDict) -> None:
    calls = [0] * 4

    def work(number: int) -> None:
        def change(value: list[int] | None) -> Update:
            calls[number] += 1
            value = value or [0] * 4
            value[number] += 1
            return Update(value)

        for _ in range(100):
            shared.update("state", change)

    together(*[lambda number=number: work(number) for number in range(4)])  # type: ignore[misc]
    assert shared.get("state") == [100] * 4
    assert sum(calls) > 400, "there was no conflict"


def test_only_one_of_many_adds_stores(shared: RedisDict) -> None:
    winners: list[str] = []

    def add(name: str) -> None:
        winners.extend(key for key in map(str, range(100)) if shared.add(key, name))

    together(*[lambda name=name: add(name) for name in "abcd"])  # type: ignore[misc]
    assert sorted(winners) == sorted(map(str, range(100)))


def test_each_item_of_a_list_is_taken_once(shared: RedisDict) -> None:
    popped: list[int] = []

    def push() -> None:
        for number in range(200):
            shared.rpush("l", number)

    def pop() -> None:
        for _ in range(150):
            item = shared.lpop("l")
            if item is not None:
                popped.append(item)

    together(push, push, pop, pop)
    while (item := shared.lpop("l")) is not None:
        popped.append(item)
    assert sorted(popped) == sorted([*range(200)] * 2)


PROGRAM = """
import sys
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}})
from resty_django.shdict.redis import RedisDict
shared = RedisDict("writers")
for _ in range(300):
    shared.incr("n", 1, init=0)
    shared.update("u", lambda value: __import__("resty_django.shdict").shdict.Update((value or 0) + 1))
"""


def test_processes_share_it(shared: RedisDict, valkey_url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, valkey_url]
    running = [processes.Process(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert (shared.get("n"), shared.get("u")) == (900, 900)
