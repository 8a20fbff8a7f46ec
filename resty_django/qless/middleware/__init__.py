"""The middleware of the worker, each in its own file.

class SendInvoice:
    middleware = [Retry(OSError, backoff=5, factor=3), Timeout(60)]

    @staticmethod
    def perform(job): ...
"""

from __future__ import annotations

from .always import adatabase, database, transaction
from .bounds import MemoryBound, Timeout
from .connections import Reconnect
from .error_reporting import ReportErrors
from .limits import Limit
from .retries import Requeue, Retry

__all__ = [
    "Limit",
    "MemoryBound",
    "Reconnect",
    "ReportErrors",
    "Requeue",
    "Retry",
    "Timeout",
    "adatabase",
    "database",
    "transaction",
]
