"""The current txid of a request, a job or a command.

It is stored in a context variable, so each thread and each asyncio task has its own. New asyncio tasks,
`asyncio.to_thread` and `sync_to_async` inherit it; pass it to other threads with `carry`.

A run of `manage.py` has one txid, created on first use outside of any request, job or `bound` block. The program name
decides whether the process is a command: see `TXID["COMMANDS"]`. Server processes have no such txid, so their log lines
never carry an unrelated one.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured

from resty_django.callables import is_async, is_generator_function, plain_value
from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING

from .codec import parse
from .generator import txid as new_txid
from .traceparent import Trace

P = ParamSpec("P")
R = TypeVar("R")


class Bound(NamedTuple):
    """The value of the context variable."""

    txid: str
    trace: Trace | None


class BoundLater:
    """The same for a new txid that is made when it is needed first, which for most jobs is never.

    A fork needs it: the forked process shares the txid.
    """

    trace = None

    @property
    def txid(self) -> str:
        made: dict[str, str] = self.__dict__
        return made.get("txid") or made.setdefault("txid", new_txid())  # one, also for several threads


_bound: Final[ContextVar[Bound | BoundLater | None]] = ContextVar("resty_django.txid", default=None)
bind, unbind = _bound.set, _bound.reset
_of_runs: Final[dict[str, str]] = {}


def _before_fork() -> str | None:
    bound = _bound.get()
    return None if bound is None else bound.txid


os.register_at_fork(before=_before_fork)


def current() -> str | None:
    """Return the txid of the current request, job or `bound` block, else of the `manage.py` run, else None."""
    bound = _bound.get()
    if bound is not None:
        return bound.txid
    try:
        return run_txid(sys.argv[0] if sys.argv else "")
    except ImproperlyConfigured:  # with invalid settings, log lines have no txid
        return None


@functools.lru_cache(maxsize=16)
def run_txid(program: str) -> str | None:
    """Return the txid of this run, shared with forked children; None if the program is not a command.

    The result is kept until a setting changes, because each log line needs it. Raise `ImproperlyConfigured`.
    """
    if not any(program == command or program.endswith(f"/{command}") for command in conf.txid.commands):
        return None
    return _of_runs.get(program) or _of_runs.setdefault(program, new_txid())


on_change(run_txid.cache_clear, SETTING)


def current_trace() -> Trace | None:
    """Return the W3C trace of the current request or job; None if it has none."""
    bound = _bound.get()
    return None if bound is None else bound.trace


class Binding:
    """A context manager that makes a txid and a trace current for its block, and restores the previous ones afterwards.

    It can be reused after its block ends. Enter and exit it in the same thread or task. `txid`: None for a new one.
    """

    __slots__ = ("_bound", "_token")

    def __init__(self, txid: str | None, trace: Trace | None = None) -> None:
        self._bound = BoundLater() if txid is None else Bound(txid, trace)

    def __enter__(self) -> None:
        self._token = _bound.set(self._bound)

    def __exit__(self, *exc_info: object) -> None:
        _bound.reset(self._token)


class bound:
    """Run a block, or a function decorated with `@bound()`, with its own txid; the block gets the txid.

    For jobs: `with bound(job.txid): ...`. Without `txid`, each block and each call gets a new one. Raise `InvalidTxid`,
    and `TypeError` for a generator function, whose caller would have the txid, too, between two items.
    """

    def __init__(self, txid: str | None = None, trace: Trace | None = None) -> None:
        self._txid = None if txid is None else parse(txid).txid
        self._trace = trace

    def __enter__(self) -> str:
        txid = self._txid or new_txid()
        self._token = _bound.set(Bound(txid, self._trace))
        return txid

    def __exit__(self, *exc_info: object) -> None:
        _bound.reset(self._token)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return _within(function, lambda: bound(self._txid, self._trace), "@bound()")


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs `function` with the txid and trace that are current now.

    Use it for threads: `Thread(target=carry(work))`, `executor.submit(carry(work), 7)`, `executor.map(carry(work),
    items)`. A coroutine function becomes one. Raise `TypeError` for a generator function.
    """
    carried_bound = _bound.get()

    @contextmanager
    def carrying() -> Iterator[None]:
        token = _bound.set(carried_bound)
        try:
            yield
        finally:
            _bound.reset(token)

    return _within(function, carrying, "carry()")


def _within(
    function: Callable[P, R], context: Callable[[], AbstractContextManager[object]], decorator: str
) -> Callable[P, R]:
    """Return a function that runs `function` within a new context."""
    if is_generator_function(function):
        raise TypeError(
            f"{decorator} cannot keep a txid for the generator function {function!r}. Use `with bound()` in it."
        )
    within: Callable[..., Any]
    if is_async(function):

        @functools.wraps(function)
        async def within(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)  # type: ignore[misc]
    else:

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with context():
                return plain_value(function(*args, **kwargs), f"The function {function!r} of {decorator}")

    return cast("Callable[P, R]", within)
