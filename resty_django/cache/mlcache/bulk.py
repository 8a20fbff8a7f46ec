"""Bulk operations: missing values are fetched by several threads or tasks."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Unpack

from django.db import connections

from ..errors import BadKey, BadOption
from ..statistics.counts import Stats
from ..storage.records import key_text
from .options import CacheOptions, check
from .results import L1, Answer, Level, Result


class Operation(NamedTuple):
    key: str
    callback: Callable[..., Any]
    args: tuple[Any, ...]
    options: Mapping[str, Any]


class Bulk:
    """The operations of a `get_bulk`, in order. Keys may be repeated."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []

    def add(self, key: object, callback: Callable[..., Any], /, *args: Any, **options: Unpack[CacheOptions]) -> Bulk:
        """Add a `get` with these arguments; a callback is required. Raise `BadKey` or `BadOption`."""
        position = f"operation {len(self._operations) + 1}: "
        try:
            text = key_text(key)
            check(options)
        except (BadKey, BadOption) as error:
            raise type(error)(f"{position}{error}") from None
        if not callable(callback):
            raise BadOption(f"{position}callback must be a function or a coroutine function, not {callback!r}.")
        self._operations.append(Operation(text, callback, args, options))
        return self

    def __len__(self) -> int:
        return len(self._operations)

    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._operations)


class Results:
    """Collects and counts the results of the operations."""

    def __init__(self, count: int, counts: Stats, count_level: Callable[[Level], object]) -> None:
        self._results: list[Result | None] = [None] * count
        self._counts = counts
        self._count_level = count_level

    def note(self, position: int, answer: Answer | None) -> None:
        """Record an answer; None: still missing."""
        if answer is not None:
            self._results[position] = Result(answer[0], None, answer[1])
            if answer[1] is not L1:
                self._count_level(answer[1])

    @contextmanager
    def noting_errors(self, position: int) -> Iterator[None]:
        """Record an error that is raised in the block."""
        try:
            yield
        except Exception as error:
            self.note_error(position, error)

    def note_error(self, position: int, error: Exception) -> None:
        self._results[position] = Result(None, error, None)
        self._counts.errors += 1

    def missing(self) -> list[int]:
        return [position for position, result in enumerate(self._results) if result is None]

    def all(self) -> list[Result]:
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
