"""The txid of what is under way: a request, a job, a run of a command.

It is in a context variable, so each thread and each task of asyncio sees its own. Tasks of asyncio, `asyncio.to_thread`
and `sync_to_async` hand it on by themselves; other threads get it by `carry`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Final, NamedTuple, ParamSpec, TypeVar

from .codec import parse
from .make import txid as new_txid
from .run import run_txid
from .traceparent import Trace

P = ParamSpec("P")
R = TypeVar("R")


class Bound(NamedTuple):
    """What is in the context variable."""

    txid: str
    trace: Trace | None


_bound: Final[ContextVar[Bound | None]] = ContextVar("resty_django.txid", default=None)


def current() -> str | None:
    """The txid of the request, job or block under way; else that of the run of `manage.py`; else None."""
    here = _bound.get()
    return run_txid() if here is None else here.txid


def current_trace() -> Trace | None:
    """The W3C trace of the request or job under way, if it has one."""
    here = _bound.get()
    return None if here is None else here.trace


def bind(txid: str, trace: Trace | None) -> Token[Bound | None]:
    """Make them the current ones until `unbind` is called with the token, in the same thread or task."""
    return _bound.set(Bound(txid, trace))


def unbind(token: Token[Bound | None]) -> None:
    """Back to what was current before."""
    _bound.reset(token)


@contextmanager
def bound(txid: str | None = None, trace: Trace | None = None) -> Iterator[str]:
    """A block, or with `@bound()` a function, with a txid of its own; gives the txid.

    For jobs: `with bound(job.txid): ...`. Without `txid` each time a new one. Raises `InvalidTxid` where it is none.
    """
    mine = new_txid() if txid is None else parse(txid).txid
    token = bind(mine, trace)
    try:
        yield mine
    finally:
        unbind(token)


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with the txid and the trace of now whenever and wherever it is called.

    For threads: `Thread(target=carry(work))`, `executor.submit(carry(work), 7)`, `executor.map(carry(work), items)`.
    """
    here = _bound.get()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _bound.set(here)
        try:
            return function(*args, **kwargs)
        finally:
            _bound.reset(token)

    return carried
