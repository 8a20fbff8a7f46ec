"""The current txid: of a request, a job, or a run of a command.

It is in a context variable, so each thread and each task of asyncio sees its own. Tasks of asyncio, `asyncio.to_thread`
and `sync_to_async` inherit it; other threads receive it through `carry`.
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
    """Return the txid of the request, job or block under way; else the txid of the run of `manage.py`; else None."""
    bound = _bound.get()
    if bound is not None:
        return bound.txid
    try:
        return run_txid(sys.argv[0] if sys.argv else "")
    except ImproperlyConfigured:  # a log line without right settings has none
        return None


def current_trace() -> Trace | None:
    """Return the W3C trace of the running request or job, if it has one."""
    bound = _bound.get()
    return None if bound is None else bound.trace


class Binding:
    """A context manager that makes a txid and a trace current for its block, and restores those before at its end.

    It may be entered again after its end. Enter and exit it in the same thread or task.
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
    """Run a block, or with `@bound()` a function, with its own txid; yield the txid.

    For jobs: `with bound(job.txid): ...`. Without `txid` each block gets a new one. Raises `InvalidTxid`.
    """
    block_txid = new_txid() if txid is None else parse(txid).txid
    with Binding(block_txid, trace):
        yield block_txid


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs `function` with the current txid and trace, whenever and wherever it is called.

    For threads: `Thread(target=carry(work))`, `executor.submit(carry(work), 7)`, `executor.map(carry(work), items)`.
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
