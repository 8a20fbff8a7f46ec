"""Tasks whose functions return what their caller has to run: awaitables, and generators, which are refused."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from resty_django.qless import task
from tests.integration.qless.tasks.examples import TRAIL


async def body(word: str) -> str:
    await asyncio.sleep(0)
    TRAIL.append(word)
    return word


def rows(word: str) -> Iterator[str]:
    TRAIL.append(word)
    yield word


async def arows(word: str) -> AsyncIterator[str]:
    TRAIL.append(word)
    yield word


class Caller:
    async def __call__(self, word: str) -> str:
        return await body(word)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


async def nested(word: str) -> Any:
    return body(word)


async def areturned(word: str) -> Any:
    return rows(word)


AWAITED: Final = {
    "wrapped": wrapped(body),
    "partial": functools.partial(wrapped(body)),
    "async partial": functools.partial(body),
    "object": Caller(),
    "nested": nested,
}
GENERATORS: Final = {"rows": wrapped(rows), "arows": wrapped(arows), "returned": wrapped(areturned)}
TASKS: Final = {}
for kind, function in (AWAITED | GENERATORS).items():
    for ignore_result in (False, True):
        function = functools.partial(function) if not isinstance(function, Caller) else Caller()
        vars(function).update(__module__=__name__, __qualname__=f"{kind.replace(' ', '_')}_{ignore_result}")
        TASKS[kind, ignore_result] = task(queue="q", ignore_result=ignore_result)(function)
        globals()[vars(function)["__qualname__"]] = TASKS[kind, ignore_result]


class KeepsNothing:
    @staticmethod
    def perform(job: Any) -> Any:
        return GENERATORS[job.data](job.data) if job.data in GENERATORS else AWAITED[job.data](job.data)
