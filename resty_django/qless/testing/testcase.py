"""For test classes of Django and unittest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .recorder import Recorder, record

if TYPE_CHECKING:
    from unittest import TestCase as Base
else:
    Base = object


class QlessTestMixin(Base):
    """Records the tasks of each test: `self.assert_enqueued(...)`, `self.assert_not_enqueued(...)`.

    They are the methods of `self.enqueued_tasks`, a `Recorder`. Put the mixin before Django's class:
    `class OrderTests(QlessTestMixin, TestCase)`.
    """

    enqueued_tasks: Recorder

    def setUp(self) -> None:
        super().setUp()
        self.enqueued_tasks = self.enterContext(record())
        self.assert_enqueued = self.enqueued_tasks.assert_enqueued
        self.assert_not_enqueued = self.enqueued_tasks.assert_not_enqueued
