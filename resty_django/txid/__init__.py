"""Sortable transaction IDs that follow a request through its log lines, its jobs and its calls to other services.

from resty_django.txid import current, parse, txid

txid()                   # "d1vsq2rd4gsil73umvdg": 20 characters that sort by time
parse(txid()).time       # when it was made
current()                # the ID of the current request, job or command
"""

from __future__ import annotations

from .codec import InvalidTxid, Parsed, is_txid, parse, txid_max, txid_min
from .context import bound, carry, current, current_request_id, current_trace
from .generator import txid
from .monotonic import MonotonicTxid
from .traceparent import Trace

__all__ = [
    "InvalidTxid",
    "MonotonicTxid",
    "Parsed",
    "Trace",
    "bound",
    "carry",
    "current",
    "current_request_id",
    "current_trace",
    "is_txid",
    "parse",
    "txid",
    "txid_max",
    "txid_min",
]
