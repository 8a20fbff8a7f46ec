"""The middleware of the worker, each in its own file.

class SendInvoice:
    middleware = [Retry(OSError, delay=5, factor=3), Timeout(60)]

    @staticmethod
    def perform(job): ...
"""

from __future__ import annotations

from .database import adatabase, database
from .error_reporting import Report
from .memory_limit import MemoryBound
from .policy_limit import Limit
from .reconnect import Reconnect
from .requeue import Requeue
from .retry import Retry
from .timeout import Timeout
from .txid import transaction

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
