"""A log filter and a JSON formatter that add the current txid to log records.

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

from .context import current, current_request_id, current_trace, valid_request_id

EMPTY = "-"
"""Placeholder for a missing txid, as in nginx logs."""


def txid_of(record: logging.LogRecord) -> str | None:
    """Return the txid of the record or of its request, else the current txid.

    The request matters because Django logs responses with status 400 and above after the middleware has finished.
    """
    txid = getattr(record, "txid", None) or getattr(getattr(record, "request", None), "txid", None)
    return txid if isinstance(txid, str) else current()


def trace_of(record: logging.LogRecord) -> tuple[str, str]:
    """Return the trace ID and span ID, found in the same way; empty if there is no trace."""
    if hasattr(record, "trace_id"):
        return str(record.trace_id), str(getattr(record, "span_id", ""))
    trace = getattr(getattr(record, "request", None), "trace", None) or current_trace()
    return (trace.trace_id, trace.span_id) if trace is not None else ("", "")


def request_id_of(record: logging.LogRecord) -> str | None:
    """Return the request ID that the caller has sent, found in the same way."""
    if hasattr(record, "request_id"):
        return str(record.request_id)
    of_request = getattr(getattr(record, "request", None), "request_id", None)  # perhaps of another middleware
    return valid_request_id(of_request) or current_request_id()


class TxidFilter(logging.Filter):
    """A filter that adds `txid` and `request_id` ("-" without one), `trace_id` and `span_id` to records; drops none.

    Attach it to a handler, because a logger's filters do not see the records of its child loggers. The handler must run
    in the thread of the log call: use the `QueueHandler`, not the handlers behind it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.txid = txid_of(record) or EMPTY
        record.request_id = request_id_of(record) or EMPTY
        record.trace_id, record.span_id = trace_of(record)
        return True


class JsonFormatter(logging.Formatter):
    """A formatter that writes each record as one line with a JSON object, in ASCII; exceptions are text.

    Of the `extra` attributes of a log call, only the listed ones are written; values other than numbers and text are
    converted with `str()`. So requests with their cookies and other secrets are not logged by accident.
    """

    def __init__(self, extra: Iterable[str] = ()) -> None:
        super().__init__()
        self.extra = tuple(extra)

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "txid": txid_of(record) or EMPTY,
        }
        request_id = request_id_of(record)
        if request_id and request_id != EMPTY:
            line["request_id"] = request_id
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
