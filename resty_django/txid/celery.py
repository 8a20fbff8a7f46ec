"""One txid from the request that starts a task to the task, and to the tasks that this one starts.

    # in the module with the Celery app of the site
    from resty_django.txid.celery import connect
    connect()

Each message has the txid in the header `txid`, and the W3C trace in `traceparent` and `tracestate`. The worker makes
them current for the task, its retries, its callbacks, and the log lines about it. A task that is started outside of
everything gets a txid of its own.
"""

from __future__ import annotations

from typing import Any

from celery import signals

from . import traceparent
from .codec import is_txid
from .context import bind, current, current_trace, unbind
from .make import txid


def connect() -> None:
    """Listen to Celery's signals, in all apps of this process; may be called again."""
    signals.before_task_publish.connect(_publish, dispatch_uid="resty_django.txid")
    signals.task_prerun.connect(_begin, dispatch_uid="resty_django.txid")
    signals.task_postrun.connect(_end, dispatch_uid="resty_django.txid")


def disconnect() -> None:
    """No longer listen to them."""
    for signal in (signals.before_task_publish, signals.task_prerun, signals.task_postrun):
        signal.disconnect(dispatch_uid="resty_django.txid")


def _publish(headers: dict[str, Any], **kwargs: object) -> None:
    headers.setdefault("txid", current() or txid())
    trace = current_trace()
    if trace is not None and "traceparent" not in headers:
        headers["traceparent"] = trace.traceparent
        if trace.state:
            headers["tracestate"] = trace.state


def _begin(task: Any, **kwargs: object) -> None:
    headers: dict[str, Any] = task.request.headers or {}
    brought = headers.get("txid")
    mine = brought if isinstance(brought, str) and is_txid(brought) else current() or txid()
    trace = current_trace()
    parent = headers.get("traceparent")
    if isinstance(parent, str):
        trace = traceparent.go_on(parent, str(headers.get("tracestate", "")))
    task.request._resty_txid = bind(mine, trace)


def _end(task: Any, **kwargs: object) -> None:
    unbind(task.request._resty_txid)


__all__ = ["connect", "disconnect"]
