"""Pass the txid from the request that starts a task to the task, and to the tasks that it starts.

    # in the module with the Celery app of the site
    from resty_django.txid.celery import connect
    connect()

Each message carries the txid in the header `txid`, the caller's request ID in `request_id`, and the W3C trace in
`traceparent` and `tracestate`. The worker makes them current for the task, its retries, its callbacks, and the log
lines about it. A task that is started without a current txid gets a new one.
"""

from __future__ import annotations

from typing import Any

from resty_django import extras

with extras.needed("Txids in tasks of Celery need"):
    from celery import signals

from .codec import is_txid
from .context import bound, current, current_ids, current_request_id, current_trace, valid_request_id
from .generator import txid as generate_txid
from .traceparent import continue_trace


def connect() -> None:
    """Connect to Celery's signals for all Celery apps of this process. May be called repeatedly."""
    signals.before_task_publish.connect(_publish, dispatch_uid="resty_django.txid")
    signals.task_prerun.connect(_begin, dispatch_uid="resty_django.txid")
    signals.task_postrun.connect(_end, dispatch_uid="resty_django.txid")


def disconnect() -> None:
    """Disconnect from Celery's signals."""
    for signal in (signals.before_task_publish, signals.task_prerun, signals.task_postrun):
        signal.disconnect(dispatch_uid="resty_django.txid")


def _publish(headers: dict[str, object], **kwargs: object) -> None:
    if "txid" not in headers:
        headers.update(current_ids() or {"txid": generate_txid()})
    trace = current_trace()
    if trace is not None and "traceparent" not in headers:
        headers.update(trace.headers())


def _begin(task: Any, **kwargs: object) -> None:
    headers: dict[str, object] = task.request.headers or {}
    sent_txid = headers.get("txid")
    txid = sent_txid if isinstance(sent_txid, str) and is_txid(sent_txid) else current() or generate_txid()
    trace = current_trace()
    parent = headers.get("traceparent")
    if isinstance(parent, str):
        trace = continue_trace(parent, str(headers.get("tracestate", "")))
    request_id = valid_request_id(headers.get("request_id")) or current_request_id()
    task.request._resty_txid = within_txid = bound(txid, trace, request_id)
    within_txid.__enter__()


def _end(task: Any, **kwargs: object) -> None:
    task.request._resty_txid.__exit__()
