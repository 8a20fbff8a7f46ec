"""Tasks that the tests put."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from resty_django.qless import TaskContext, task
from resty_django.txid import current, current_request_id
from tests.integration.qless.returned import RETURNED

GO = threading.Event()
TRAIL: list[Any] = []


@task(queue="q")
def add(a: int, b: int = 1) -> int:
    return a + b


@task(queue="q")
async def aadd(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


@task(queue="q")
def returns(name: str) -> Any:
    return RETURNED[name]


@task(queue="q")
async def areturns(name: str) -> Any:
    return RETURNED[name]


@task(queue="q", ignore_result=True)
def drops(name: str) -> Any:
    return RETURNED[name]


@task(queue="q")
def total(numbers: list[int], extra: int = 0) -> int:
    return sum(numbers) + extra


@task(queue="q")
def note(*texts: str, **options: Any) -> list[Any]:
    TRAIL.append([*texts, options])
    return [*texts, options]


@task(queue="q", ignore_result=True)
def silent() -> int:
    return 1


@task(queue="q", result_ttl=3)
def brief() -> int:
    return 1


@task(queue="q", priority=3, retries=2, tags=["one"])
def optioned() -> None: ...


@task(queue="q")
def txid() -> str | None:
    return current()


@task(queue="q")
def request_id() -> str | None:
    return current_request_id()


@task(queue="q")
def fails(word: str = "no") -> None:
    if not GO.is_set():
        raise ValueError(word)


@task(queue="q")
async def afails() -> None:
    raise ValueError("async no")


@task(queue="q", retries=3, backoff=0.02)
def third_time(name: str) -> int:
    TRAIL.append(name)
    if TRAIL.count(name) < 3:
        raise OSError("not yet")
    return TRAIL.count(name)


@task(queue="q", retries=5, backoff=[0.02], retry_on=OSError)
def picky() -> None:
    TRAIL.append("picky")
    raise ValueError("not to be retried")


@task(queue="q", retries=2, backoff=[600])
def fails_after(seconds: float = 0.0) -> None:
    time.sleep(seconds)
    raise OSError("not there")


@task(queue="q", bind=True, retries=2)
def bound(self: TaskContext, limit: int) -> list[Any]:
    TRAIL.append(self.attempt)
    self.update_progress(self.attempt / 3, f"run {self.attempt}")
    if self.request.retries < limit:
        self.retry(exc=OSError(f"run {self.attempt}"), countdown=0.02)
    return [self.id, self.request.retries, self.path]


@task(queue="q", bind=True, retries=2)
async def abound(self: TaskContext, limit: int) -> int:
    await self.aupdate_progress(0.5, "half")
    if self.retries < limit:
        self.retry(countdown=0.02)
    return self.retries


@task(queue="q", timeout=0.2)
def slow() -> None:
    while not GO.wait(0.01):
        pass


@task(queue="q", unique=True)
def once(a: int, b: int = 2) -> int:
    TRAIL.append(("once", a, b))
    GO.wait(20)
    return a + b


@task(queue="q", unique=["order"])
def once_an_order(order: int, how: str = "") -> str:
    return how


@task(queue="q", rate="20/s")
def limited(number: int) -> int:
    TRAIL.append(number)
    return number


@task(queue="timed", every=30, tags=["tick"], retries=1)
def every_so_often() -> None:
    TRAIL.append("every")


@task(queue="timed", cron="30 2 * * *")
def nightly() -> None:
    TRAIL.append("nightly")


@task(queue="q")
def log_in(user: str, password: str) -> None: ...


@task(queue="q")
def keep(*secrets: str) -> None: ...


@task(queue="q")
def keep_all(place: str, *secrets: str, day: int = 0) -> None: ...


@task(queue="q")
def charge(order: int, card_number: str, note: str = "") -> None: ...


@task(queue="q", timeout=0.1)
def naps() -> None:
    for _ in range(1000):
        time.sleep(0.01)


@task(queue="q", timeout=0.1)
async def anaps() -> None:
    await asyncio.sleep(10)


@task(queue="q", timeout=60)
def quick() -> int:
    return 1


@task(queue="q", bind=True)
def progressing(context: TaskContext) -> int:
    context.update_progress(0.5, "half")
    return 1


@task(queue="q")
def report(outcome: Any, *words: str) -> str:
    TRAIL.append((outcome, *words))
    return "reported"


@task(queue="q", tags=["alarm"], priority=7, retries=2)
def alarm(outcome: Any) -> None:
    TRAIL.append(outcome)


@task(queue="q", on_failure=alarm)
def watched(fail: bool = True) -> int:
    if fail and not GO.is_set():
        raise KeyError("watched")
    return 3


@task(queue="q", retries=1, backoff=0.02, retry_on=StopIteration)
def exhausted() -> None:
    TRAIL.append("exhausted")
    next(iter(()))


@task(queue="q", retries=1, backoff=0.02, retry_on=StopIteration)
async def aexhausted() -> None:
    exhausted.function()
