"""A mixin for Django's test cases."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from .assertions import assert_limited, assert_not_limited
from .stores import FrozenClock, frozen_limits

if TYPE_CHECKING:
    from unittest import TestCase as _Base
else:
    _Base = object


class LimitsTestMixin(_Base):
    """In each test, all limits are unused, and `self.limits_clock` is their time.

    Put it before Django's class: `class LoginTests(LimitsTestMixin, TestCase)`.
    """

    limits_clock: FrozenClock

    def setUp(self) -> None:
        super().setUp()
        stack = ExitStack()
        self.limits_clock = stack.enter_context(frozen_limits())
        self.addCleanup(stack.close)

    def assert_limited(self, call: Any, *args: Any, times: int, **kwargs: Any) -> Any:
        """Assert that exactly `times` calls pass and the next one is refused: see `assert_limited`."""
        return assert_limited(call, *args, times=times, **kwargs)

    def assert_not_limited(self, call: Any, *args: Any, times: int, **kwargs: Any) -> None:
        """Assert that `times` calls pass."""
        assert_not_limited(call, *args, times=times, **kwargs)
