"""Fixtures of the tests of quotas."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from resty_django.limits import Quota
from resty_django.limits.quotas.quota import DATABASE
from tests.dictionaries import Clock

JULY = datetime(2026, 7, 8, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def database_up(empty_limits: None) -> Iterator[None]:
    """A test may take the database down."""
    yield
    DATABASE.reset()


@pytest.fixture
def july() -> Clock:
    return Clock(JULY)


@pytest.fixture(params=["call", "twin"])
def call(request: pytest.FixtureRequest) -> Any:
    """Call a method of a quota, or its async twin."""

    async def call(method: Any, *args: Any, **options: Any) -> Any:
        if request.param == "call":
            return await sync_to_async(method)(*args, **options)
        return await getattr(method.__self__, f"a{method.__name__}")(*args, **options)

    return call


def monthly(limit: Any = 1000, **options: Any) -> Quota:
    return Quota("exports", limit, per="month", timezone="UTC", **{"on_error": "raise", **options})
