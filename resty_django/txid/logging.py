"""Log records with the txid of what is under way.

LOGGING = {
    "version": 1,
    "filters": {"txid": {"()": "resty_django.txid.logging.TxidFilter"}},
    "formatters": {"json": {"()": "resty_django.txid.logging.JsonFormatter"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "filters": ["txid"], "formatter": "json"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from .context import current, current_trace

EMPTY = "-"
"""Stands where there is no txid, as in the logs of nginx."""


def txid_of(record: logging.LogRecord) -> str | None:
    """Return the txid that the record has, or that its request has, else the current one.

    The request is asked, since Django writes its line about a status of 400 or more when the middleware is done.
    """
    txid = getattr(record, "txid", None) or getattr(getattr(record, "request", None), "txid", None)
    return txid if isinstance(txid, str) else current()


def trace_of(record: logging.LogRecord) -> tuple[str, str]:
    """Trace id and span id, found in the same way; empty where there are none."""
    if hasattr(record, "trace_id"):
        return str(record.trace_id), str(getattr(record, "span_id", ""))
    trace = getattr(getattr(record, "request", None), "trace", None) or current_trace()
    return (trace.trace_id, trace.span_id) if trace is not None else ("", "")


class TxidFilter(logging.Filter):
    """Gives each record the attributes `txid` ("-" where there is none), `trace_id` and `span_id`; drops nothing.

    Belongs to a handler, since filters of a logger do not see the records of the loggers below it; to that handler
    which is called in the thread of the log call, so to a `QueueHandler` and not to what comes after it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.txid = txid_of(record) or EMPTY
        record.trace_id, record.span_id = trace_of(record)
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object and one line for each record, in ASCII; exceptions as text.

    Of what a call gives as `extra`, only the attributes named here get into the line; what is neither number nor text
    as its `str()`. So no request with its cookies, and no other secret, gets there by itself.
    """

    def __init__(self, extra: Iterable[str] = ()) -> None:
        super().__init__()
        self.extra = tuple(extra)

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "txid": txid_of(record) or EMPTY,
        }
        trace_id, span_id = trace_of(record)
        if trace_id:
            line |= {"trace_id": trace_id, "span_id": span_id}
        line |= {"process": record.process, "thread": record.threadName}
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        line |= {name: _plain(getattr(record, name)) for name in self.extra if hasattr(record, name)}
        return json.dumps(line)


def _plain(value: object) -> object:
    if isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
