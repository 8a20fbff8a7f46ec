"""Fixtures for pytest. In the site's conftest.py: `pytest_plugins = ["resty_django.limits.testing.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .stores import FrozenClock, frozen_limits
from .stores import no_limits as _no_limits


@pytest.fixture(name="frozen_limits")
def frozen_limits_fixture() -> Iterator[FrozenClock]:
    """Provide the clock of all limits, which are unused at first, and whose time only the test moves."""
    with frozen_limits() as clock:
        yield clock


@pytest.fixture
def no_limits() -> Iterator[None]:
    """Let every request pass every limit."""
    with _no_limits():
        yield
