"""Tools to test code that enqueues and runs tasks.

    with record() as recorded:
        place_order(7)
    recorded.assert_enqueued(send_invoice, args=(7,), queue="mail")

    with TestWorker() as worker:
        result = send_invoice.delay(7)
        worker.drain(seconds=60)  # also the retries of the next minute
    result.get()

See docs/reference/jobs/testing.md.
"""

from .recorder import EnqueuedGroup, EnqueuedTask, Recorder, assert_enqueued, assert_not_enqueued, record
from .testcase import QlessTestMixin
from .worker import FakeClock, Run, TestWorker

__all__ = [
    "EnqueuedGroup",
    "EnqueuedTask",
    "FakeClock",
    "QlessTestMixin",
    "Recorder",
    "Run",
    "TestWorker",
    "assert_enqueued",
    "assert_not_enqueued",
    "record",
]
