"""For test classes of Django and unittest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..tasks.base import Task
from .recorder import EnqueuedTask, MatchOptions, Recorder, record

if TYPE_CHECKING:
    from unittest import TestCase as Base
else:
    Base = object


class QlessTestMixin(Base):
    """Records the tasks of each test: `self.assert_enqueued(...)`, `self.assert_not_enqueued(...)`.

    Put the mixin before Django's class: `class OrderTests(QlessTestMixin, TestCase)`.
    """

    enqueued_tasks: Recorder

    def setUp(self) -> None:
        super().setUp()
        self.enqueued_tasks = self.enterContext(record())

    def assert_enqueued(
        self,
        task: Task[..., Any],
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        count: int | None = None,
        **options: Unpack[MatchOptions],
    ) -> EnqueuedTask:
        """Call `Recorder.assert_enqueued`."""
        return self.enqueued_tasks.assert_enqueued(task, args, kwargs, count=count, **options)

    def assert_not_enqueued(
        self,
        task: Task[..., Any] | None = None,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[MatchOptions],
    ) -> None:
        """Call `Recorder.assert_not_enqueued`."""
        self.enqueued_tasks.assert_not_enqueued(task, args, kwargs, **options)
