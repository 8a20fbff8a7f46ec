"""Chains of middleware, sync and async."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import Any

import pytest

from resty_django.qless.middleware import chain
from resty_django.qless.middleware.chain import MiddlewareError


def recorder(name: str, trail: list[str], swallow: type[Exception] | None = None) -> Any:
    def middleware(job: Any) -> Any:
        trail.append(f"+{name}")
        try:
            yield
        except Exception as error:
            trail.append(f"{name}:{type(error).__name__}")
            if swallow is None or not isinstance(error, swallow):
                raise
        finally:
            trail.append(f"-{name}")

    return middleware


def arecorder(name: str, trail: list[str], swallow: type[Exception] | None = None) -> Any:
    async def middleware(job: Any) -> Any:
        with contextmanager(recorder(name, trail, swallow))(job):
            yield

    return middleware


def run(is_async: bool, middleware: list[Any], function: Any) -> Any:
    if not is_async:
        return chain.run(middleware, "job", function)

    async def called(job: Any) -> Any:
        await asyncio.sleep(0)
        return function(job)

    return asyncio.run(chain.arun(middleware, "job", called))


def fails(job: Any) -> None:
    raise KeyError(job)


BOTH = pytest.mark.parametrize("is_async", [False, True])


@BOTH
def test_middleware_is_around_the_job(is_async: bool) -> None:
    trail: list[str] = []
    last = arecorder("c", trail) if is_async else recorder("c", trail)
    assert run(is_async, [recorder("a", trail), recorder("b", trail), last], lambda job: trail.append(job) or 7) == 7
    assert trail == ["+a", "+b", "+c", "job", "-c", "-b", "-a"]


@BOTH
def test_an_exception_of_the_job_passes_through(is_async: bool) -> None:
    trail: list[str] = []
    with pytest.raises(KeyError):
        run(is_async, [recorder("a", trail), recorder("b", trail)], fails)
    assert trail == ["+a", "+b", "b:KeyError", "-b", "a:KeyError", "-a"]


@BOTH
def test_a_middleware_may_swallow_an_exception_of_the_job(is_async: bool) -> None:
    trail: list[str] = []
    make = arecorder if is_async else recorder
    assert run(is_async, [recorder("a", trail), make("b", trail, KeyError)], fails) is None
    assert trail == ["+a", "+b", "b:KeyError", "-b", "-a"]


@BOTH
def test_a_middleware_that_raises_prevents_the_job(is_async: bool) -> None:
    trail: list[str] = []

    def refuses(job: Any) -> Any:
        raise KeyError(job)
        yield

    with pytest.raises(KeyError):
        run(is_async, [recorder("a", trail), refuses, recorder("c", trail)], trail.append)
    assert trail == ["+a", "a:KeyError", "-a"]


def nothing(job: Any) -> Any:
    return
    yield


def twice(job: Any) -> Any:
    yield
    yield


async def anothing(job: Any) -> Any:
    return
    yield


async def atwice(job: Any) -> Any:
    yield
    yield


@BOTH
@pytest.mark.parametrize(
    ("wrong", "word"), [(nothing, "did not yield"), (twice, "more than once"), (len, "not a generator function")]
)
def test_an_object_that_is_not_a_middleware_is_refused(is_async: bool, wrong: Any, word: str) -> None:
    trail: list[str] = []
    with pytest.raises(MiddlewareError, match=word):
        run(is_async, [recorder("a", trail), wrong], str)
    assert trail == ["+a", "a:MiddlewareError", "-a"]


@pytest.mark.parametrize(("wrong", "word"), [(anothing, "did not yield"), (atwice, "more than once")])
def test_an_async_generator_that_is_not_a_middleware_is_refused(wrong: Any, word: str) -> None:
    with pytest.raises(MiddlewareError, match=word):
        run(True, [wrong], str)


def test_async_middleware_does_not_fit_a_sync_job() -> None:
    with pytest.raises(MiddlewareError, match="is async, but the job is not"):
        run(False, [arecorder("a", [])], str)
