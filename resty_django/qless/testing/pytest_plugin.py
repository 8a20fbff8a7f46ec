"""Fixtures for pytest. In the site's conftest.py: `pytest_plugins = ["resty_django.qless.testing.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .recorder import Recorder, record
from .worker import TestWorker


@pytest.fixture
def enqueued_tasks() -> Iterator[Recorder]:
    """Record the tasks that the test enqueues; none of them runs."""
    with record() as recorder:
        yield recorder


@pytest.fixture
def qless_worker() -> Iterator[TestWorker]:
    """Provide a worker with an empty queue on an embedded Valkey, and a clock that the test moves."""
    with TestWorker() as worker:
        yield worker
