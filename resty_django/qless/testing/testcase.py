"""For test classes of Django and unittest."""

from __future__ import annotations

from typing import Any

from .recorder import Recorder, record


class QlessTestMixin:
    """Records the tasks of each test: `self.enqueued_tasks.assert_enqueued(...)`.

    Put it before Django's class: `class OrderTests(QlessTestMixin, TestCase)`.
    """

    enqueued_tasks: Recorder

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        recording = record()
        self.enqueued_tasks = recording.__enter__()
        self.addCleanup(recording.__exit__, None, None, None)  # type: ignore[attr-defined]

    def assert_enqueued(self, *args: Any, **options: Any) -> Any:
        """Call `Recorder.assert_enqueued`."""
        return self.enqueued_tasks.assert_enqueued(*args, **options)

    def assert_not_enqueued(self, *args: Any, **options: Any) -> None:
        """Call `Recorder.assert_not_enqueued`."""
        self.enqueued_tasks.assert_not_enqueued(*args, **options)
