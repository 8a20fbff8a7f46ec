"""The current txid of a request, a job or a command.

    with bound() as txid:       # everything in the block has this txid
        current()               # the same txid

It is stored in a context variable, so each thread and each asyncio task has its own. New asyncio tasks,
`asyncio.to_thread` and `sync_to_async` inherit it; pass it to other threads with `carry`.

A run of `manage.py` has one txid, created on first use outside of any request, job or `bound` block. The program name
decides whether the process is a command: see `TXID["COMMANDS"]`. Server processes have no such txid, so their log lines
never carry an unrelated one.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Final, NamedTuple, ParamSpec, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured

from resty_django.callables import is_async, is_generator_function, plain_value
from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING

from .codec import is_txid, parse
from .generator import txid as generate_txid
from .traceparent import Trace

P = ParamSpec("P")
R = TypeVar("R")


class CurrentIds(NamedTuple):
    """A txid, and the W3C trace and the caller's request ID that belong to it, if any."""

    txid: str
    trace: Trace | None
    request_id: str | None = None


REQUEST_ID_HEADER: Final = "X-Request-Id"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{8,128}")
"""Also matches UUIDs and nginx's `$request_id`; nothing that could begin another header or log line."""
_current_ids: Final[ContextVar[CurrentIds | None]] = ContextVar("resty_django.txid", default=None)
_run_txids: Final[dict[str, str]] = {}


def current() -> str | None:
    """Return the txid of the current request, job or `bound` block, else of the `manage.py` run, else None."""
    ids = _current_ids.get()
    if ids is not None:
        return ids.txid
    try:
        return run_txid(sys.argv[0] if sys.argv else "")
    except ImproperlyConfigured:  # with invalid settings, log lines have no txid
        return None


def current_trace() -> Trace | None:
    """Return the W3C trace of the current request or job; None if it has none."""
    ids = _current_ids.get()
    return None if ids is None else ids.trace


def current_request_id() -> str | None:
    """Return the request ID that the caller of the current request or job has sent; None if there is none."""
    ids = _current_ids.get()
    return None if ids is None else ids.request_id


def current_ids() -> dict[str, str]:
    """Return the current `txid` and `request_id`, without those that are None. They are arguments of `bound`."""
    ids = _current_ids.get()
    if ids is not None and ids.request_id is not None:
        return {"txid": ids.txid, "request_id": ids.request_id}
    txid = current() if ids is None else ids.txid
    return {} if txid is None else {"txid": txid}


def valid_request_id(value: object) -> str | None:
    """Return the value if it is a request ID in an allowed form, else None."""
    return value if isinstance(value, str) and _REQUEST_ID.fullmatch(value) else None


def id_headers(txid: str, request_id: str | None) -> dict[str, str]:
    """Return the headers that carry the IDs. The caller's request ID goes back under the name under which it came."""
    header = conf.txid.header
    if request_id is None:
        return {header: txid}
    taken = header.lower() == REQUEST_ID_HEADER.lower()
    return {"X-Txid" if taken else header: txid, REQUEST_ID_HEADER: request_id}


class bound:
    """Run a block, or a function decorated with `@bound()`, with its own txid; the block gets the txid.

    For jobs: `with bound(job.txid): ...`. Without `txid`, each block and each call gets a new one. After the block, the
    previous txid is current again. An object can be used for several blocks, one after the other.

    An invalid `request_id` is ignored. Raise `InvalidTxid`, and `TypeError` for a generator function: the txid would
    remain current in its caller between two items.
    """

    def __init__(self, txid: str | None = None, trace: Trace | None = None, request_id: str | None = None) -> None:
        self._txid = txid if txid is None or is_txid(txid) else parse(txid).txid
        self._trace = trace
        self._request_id = valid_request_id(request_id)

    def __enter__(self) -> str:
        txid = self._txid or generate_txid()
        self._token = _current_ids.set(CurrentIds(txid, self._trace, self._request_id))
        return txid

    def __exit__(self, *exc_info: object) -> None:
        _current_ids.reset(self._token)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        return _within(function, lambda: bound(self._txid, self._trace, self._request_id), "@bound()")


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs `function` with the txid and trace that are current now.

    Use it for threads: `Thread(target=carry(work))`, `executor.submit(carry(work), 7)`, `executor.map(carry(work),
    items)`. A coroutine function becomes one. Raise `TypeError` for a generator function.
    """
    ids = _current_ids.get()
    return _within(function, lambda: BoundIds(ids), "carry()")


class BoundIds:
    """Does the same as `bound` for IDs that are already checked, including no IDs.

    To check the txid of a request again would take 15 % of `TxidMiddleware`'s time.
    """

    def __init__(self, ids: CurrentIds | None) -> None:
        self._ids = ids

    def __enter__(self) -> None:
        self._token = _current_ids.set(self._ids)

    def __exit__(self, *exc_info: object) -> None:
        _current_ids.reset(self._token)


@functools.lru_cache(maxsize=16)
def run_txid(program: str) -> str | None:
    """Return the txid of this run, shared with forked children; None if the program is not a command.

    The result is kept until a setting changes, because each log line needs it. Raise `ImproperlyConfigured`.
    """
    if not any(program == command or program.endswith(f"/{command}") for command in conf.txid.commands):
        return None
    return _run_txids.get(program) or _run_txids.setdefault(program, generate_txid())


on_change(run_txid.cache_clear, SETTING)


def _within(
    function: Callable[P, R], context: Callable[[], AbstractContextManager[object]], decorator: str
) -> Callable[P, R]:
    """Return a function that runs `function` within a new context."""
    if is_generator_function(function):
        raise TypeError(
            f"{decorator} cannot keep a txid for the generator function {function!r}. Use `with bound()` in it."
        )
    if is_async(function):
        coroutine_function = cast("Callable[P, Awaitable[object]]", function)

        @functools.wraps(function)
        async def awithin(*args: P.args, **kwargs: P.kwargs) -> object:
            with context():
                return await coroutine_function(*args, **kwargs)

        return cast("Callable[P, R]", awithin)

    @functools.wraps(function)
    def within(*args: P.args, **kwargs: P.kwargs) -> R:
        with context():
            return plain_value(function(*args, **kwargs), f"The function {function!r} of {decorator}")

    return within
