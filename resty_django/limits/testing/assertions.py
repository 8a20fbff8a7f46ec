"""Assertions about the responses of limited views and the calls of limited functions, also for Django's test cases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..callers import request_settings
from ..errors import Limited
from .stores import FrozenClock, frozen_limits

if TYPE_CHECKING:
    from unittest import TestCase as _Base
else:
    _Base = object


def assert_limited(call: Callable[..., Any], *args: Any, times: int, status: int | None = None, **kwargs: Any) -> Any:
    """Assert that exactly `times` calls pass and the next one is refused. Return its response or exception.

    `call(*args, **kwargs)`: for example `client.get` with a path; a refusal is a response with `status` (default: the
    setting STATUS) or the exception `Limited`. Use it in `frozen_limits`, so that no limit was used before, and none
    recovers in the meantime.
    """
    for number in range(1, times + 1):
        if _refusal(call, args, kwargs, status) is not None:
            raise AssertionError(f"Call {number} was refused; {times} should pass.")
    refusal = _refusal(call, args, kwargs, status)
    if refusal is None:
        raise AssertionError(f"Call {times + 1} was not refused; only {times} should pass.")
    return refusal


def assert_not_limited(
    call: Callable[..., Any], *args: Any, times: int, status: int | None = None, **kwargs: Any
) -> None:
    """Assert that `times` calls pass."""
    for number in range(1, times + 1):
        if _refusal(call, args, kwargs, status) is not None:
            raise AssertionError(f"Call {number} of {times} was refused.")


def _refusal(call: Callable[..., Any], args: Any, kwargs: Any, status: int | None) -> Any:
    """Return the response or the exception of a refused call, else None."""
    refused = request_settings.current().section.status if status is None else status
    try:
        response = call(*args, **kwargs)
    except Limited as error:
        return error
    return response if getattr(response, "status_code", None) == refused else None


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
