"""Job classes for tests."""

from __future__ import annotations

import functools
import os.path  # noqa: F401  # jobs must not reach it
from collections.abc import Callable
from subprocess import run  # noqa: F401  # jobs must not reach it
from typing import Any

from resty_django.qless import Job

LIMIT = 3


def double(job: Job) -> Any:
    return job.data * 2


async def adouble(job: Job) -> Any:
    return job.data * 2


def wrapped(function: Callable[[Job], Any]) -> Callable[[Job], Any]:
    @functools.wraps(function)
    def inner(job: Job) -> Any:
        return ["wrapped", function(job)]

    return inner


@wrapped
def decorated(job: Job) -> Any:
    return job.data


class ByQueue:
    fast = 7

    @staticmethod
    def slow(job: Job) -> str:
        return "slow"

    @classmethod
    def perform(cls, job: Job) -> str:
        return f"{cls.__name__} perform"

    @staticmethod
    def process(job: Job) -> str:
        return "process"


class Processing:
    @staticmethod
    async def process(job: Job) -> str:
        return "process"

    class Inner:
        @staticmethod
        def perform(job: Job) -> str:
            return "inner"


class NotStatic:
    def perform(self, job: Job) -> None: ...


class Nothing: ...


partial = functools.partial(double)
