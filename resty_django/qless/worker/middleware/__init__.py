"""Middleware that comes with the worker: one file each.

class SendInvoice:
    middleware = [Retry(OSError, delay=5, factor=3), Timeout(60)]

    @staticmethod
    def perform(job): ...
"""

from __future__ import annotations

from .database import adatabase, database
from .limit import Limit
from .memory import MemoryBound
from .reconnect import Reconnect
from .report import Report
from .requeue import Requeue
from .retry import Retry
from .timeout import Timeout
from .transaction import transaction

__all__ = [
    "Limit",
    "MemoryBound",
    "Reconnect",
    "Report",
    "Requeue",
    "Retry",
    "Timeout",
    "adatabase",
    "database",
    "transaction",
]
