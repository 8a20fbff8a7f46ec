"""Calls of a site's functions, plain and async, from sync and async code."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from resty_django.callables import acall, acompleted, call, completed, original


def plain(word: str) -> str:
    return word


async def body(word: str) -> str:
    await asyncio.sleep(0)
    return word


async def nested(word: str) -> Any:
    return body(word)


def wrapped(word: str) -> Any:
    return body(word)


class Caller:
    async def __call__(self, word: str) -> str:
        return word


def rows(word: str) -> Iterator[str]:
    yield word


async def arows(word: str) -> AsyncIterator[str]:
    yield word


@pytest.mark.parametrize("function", [plain, body, nested, wrapped, functools.partial(body), Caller()])
async def test_results_are_complete(function: Callable[..., Any]) -> None:
    assert await acall(function, "word") == "word"
    assert await acompleted(function("word")) == "word"
    assert await sync_to_async(call)(function, "word") == "word"


@pytest.mark.parametrize("function", [rows, arows])
async def test_generators_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"generator {function.__name__}"):
        call(function, "word")
    with pytest.raises(TypeError, match="generator"):
        await acall(function, "word")
    assert completed(iter(["word"]))


async def test_a_plain_function_does_not_block_the_loop() -> None:
    assert await acall(threading.get_ident) != threading.get_ident()


@pytest.mark.filterwarnings("error")
async def test_a_coroutine_cannot_be_awaited_by_sync_code_within_a_loop() -> None:
    with pytest.raises(RuntimeError, match="same thread"):
        call(body, "word")


async def test_stop_iteration_is_propagated() -> None:
    """A StopIteration that leaves a thread would never reach the loop."""
    with pytest.raises(RuntimeError) as caught:
        await asyncio.wait_for(acall(next, iter(())), 5)
    assert isinstance(original(caught.value), StopIteration)


def test_other_errors_are_unchanged() -> None:
    for error in (ValueError("coroutine raised StopIteration"), RuntimeError("no"), StopIteration()):
        assert original(error) is error
    error = RuntimeError("The source is empty.")
    error.__cause__ = StopIteration()
    assert original(error) is error, "raised by a person"
