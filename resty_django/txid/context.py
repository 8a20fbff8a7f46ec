"""The current txid of a request, a job or a command.

It is stored in a context variable, so each thread and each asyncio task has its own. New asyncio tasks,
`asyncio.to_thread` and `sync_to_async` inherit it; pass it to other threads with `carry`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured

from .codec import parse
from .command import run_txid
from .generator import txid as new_txid
from .traceparent import Trace

P = ParamSpec("P")
R = TypeVar("R")


class Bound(NamedTuple):
    """The value of the context variable."""

    txid: str
    trace: Trace | None


_bound: Final[ContextVar[Bound | None]] = ContextVar("resty_django.txid", default=None)


def current() -> str | None:
    """Return the txid of the current request, job or `bound` block, else of the `manage.py` run, else None."""
    bound = _bound.get()
    if bound is not None:
        return bound.txid
    try:
        return run_txid(sys.argv[0] if sys.argv else "")
    except ImproperlyConfigured:  # with invalid settings, log lines have no txid
        return None


def current_trace() -> Trace | None:
    """Return the W3C trace of the current request or job; None if it has none."""
    bound = _bound.get()
    return None if bound is None else bound.trace


class Binding:
    """A context manager that makes a txid and a trace current for its block, and restores the previous ones afterwards.

    It can be reused after its block ends. Enter and exit it in the same thread or task.
    """

    __slots__ = ("_bound", "_token")

    def __init__(self, txid: str, trace: Trace | None) -> None:
        self._bound = Bound(txid, trace)

    def __enter__(self) -> None:
        self._token = _bound.set(self._bound)

    def __exit__(self, *exc_info: object) -> None:
        _bound.reset(self._token)


@contextmanager
def bound(txid: str | None = None, trace: Trace | None = None) -> Iterator[str]:
    """Run a block, or a function decorated with `@bound()`, with its own txid; yield the txid.

    For jobs: `with bound(job.txid): ...`. Without `txid`, each block gets a new one. Raise `InvalidTxid`.
    """
    block_txid = new_txid() if txid is None else parse(txid).txid
    with Binding(block_txid, trace):
        yield block_txid


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs `function` with the txid and trace that are current now.

    Use it for threads: `Thread(target=carry(work))`, `executor.submit(carry(work), 7)`, `executor.map(carry(work),
    items)`.
    """
    carried_bound = _bound.get()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _bound.set(carried_bound)
        try:
            return function(*args, **kwargs)
        finally:
            _bound.reset(token)

    return carried
