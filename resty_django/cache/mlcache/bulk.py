"""Bulk operations: missing values are fetched by several threads or tasks."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from django.db import connections

from ..errors import BadKey, BadOption
from ..statistics.counts import CacheStats
from ..storage.records import key_text
from .options import CallOptions, check
from .results import L1, GetCall, GetResult, Hit, Level


class Bulk:
    """The operations of a `get_bulk`, in order. Keys may be repeated."""

    def __init__(self) -> None:
        self._operations: list[GetCall] = []

    def add(self, key: object, callback: Callable[..., Any], /, *args: object, **options: Unpack[CallOptions]) -> Bulk:
        """Add a `get` with these arguments; a callback is required. Raise `BadKey` or `BadOption`."""
        position = f"operation {len(self._operations) + 1}: "
        try:
            text = key_text(key)
            check(options)
        except (BadKey, BadOption) as error:
            raise type(error)(f"{position}{error}") from None
        if not callable(callback):
            raise BadOption(f"{position}callback must be a function or a coroutine function, not {callback!r}.")
        self._operations.append(GetCall(text, callback, args, options))
        return self

    def __len__(self) -> int:
        return len(self._operations)

    def operations(self) -> tuple[GetCall, ...]:
        return tuple(self._operations)


class BulkResults:
    """Collects and counts the results of the operations."""

    def __init__(self, count: int, counts: CacheStats, count_level: Callable[[Level], object]) -> None:
        self._results: list[GetResult | None] = [None] * count
        self._counts = counts
        self._count_level = count_level

    def note(self, position: int, hit: Hit | None) -> None:
        """Record a value; None: still missing."""
        if hit is not None:
            self._results[position] = GetResult(hit.value, None, hit.level)
            if hit.level is not L1:
                self._count_level(hit.level)

    @contextmanager
    def noting_errors(self, position: int) -> Iterator[None]:
        """Record an error that is raised in the block."""
        try:
            yield
        except Exception as error:
            self.note_error(position, error)

    def note_error(self, position: int, error: Exception) -> None:
        self._results[position] = GetResult(None, error, None)
        self._counts.errors += 1

    def missing(self) -> list[int]:
        return [position for position, result in enumerate(self._results) if result is None]

    def all(self) -> list[GetResult]:
        return [result for result in self._results if result is not None]


def check_concurrency(bulk: object, concurrency: object) -> None:
    """Raise `BadOption` for anything but a `Bulk` and a valid `concurrency`."""
    if not isinstance(bulk, Bulk):
        raise BadOption(f"bulk must be created by new_bulk(), not {bulk!r}.")
    if type(concurrency) is not int or concurrency < 1:
        raise BadOption(f"concurrency must be an integer greater than 0, not {concurrency!r}.")


def chunks(missing: list[int], concurrency: int) -> list[list[int]]:
    """Split the positions into at most `concurrency` parts of equal length, except for the last one."""
    length = math.ceil(len(missing) / concurrency) or 1
    return [missing[start : start + length] for start in range(0, len(missing), length)]


def in_threads(parts: list[list[int]], work: Callable[[int], None]) -> None:
    """Process each part in a separate thread, the first one in this thread."""
    threads = []
    for positions in parts[1:]:
        context = contextvars.copy_context()
        threads.append(threading.Thread(target=context.run, args=(_do_all, positions, work), name="resty-cache-bulk"))
        threads[-1].start()
    try:
        for position in parts[0] if parts else ():
            work(position)
    finally:
        for thread in threads:
            thread.join()


async def in_tasks(parts: list[list[int]], work: Callable[[int], Awaitable[None]]) -> None:
    """Process each part in a separate task."""

    async def do_all(positions: list[int]) -> None:
        for position in positions:
            await work(position)

    async with asyncio.TaskGroup() as group:
        for positions in parts:
            group.create_task(do_all(positions))


def _do_all(positions: list[int], work: Callable[[int], None]) -> None:
    try:
        for position in positions:
            work(position)
    finally:
        connections.close_all()
