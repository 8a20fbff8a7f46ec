"""What the tests of limits share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from resty_django.limits import policy
from tests.dictionaries import clock, redis_cache
from tests.limiting import every, stored

__all__ = ["clock", "every", "redis_cache", "stored"]


@pytest.fixture(autouse=True)
def _no_policies_left() -> Iterator[None]:
    """What a test has read of the database is forgotten with it, also by the thread that would look again."""
    yield
    policy.reset()
