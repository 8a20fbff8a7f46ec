"""Fixtures of the tests of limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.signals import request_finished
from django.db import close_old_connections

from resty_django.limits.policies import registry
from resty_django.limits.quotas.registry import _quotas
from tests.limiting import every, stored, stores  # noqa: F401 - fixtures

from .policy_tools import limits_site, undeclared, worker  # noqa: F401 - fixtures
from .quota_tools import call, database_up, july  # noqa: F401 - fixtures
from .view_tools import bans_store, empty_limits, limits_store, site  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def _no_policies_left() -> Iterator[None]:
    """Forget after each test what it has read from the database, also in the thread that checks for changes."""
    yield
    registry.forget_policies()


@pytest.fixture(autouse=True)
def _own_quotas() -> Iterator[None]:
    """A test meets only its own quotas: two with one name and different periods are an error."""
    former = dict(_quotas)
    _quotas.clear()
    yield
    _quotas.clear()
    _quotas.update(former)


@pytest.fixture
def open_connections() -> Iterator[None]:
    """A test that closes responses itself leaves the database connections of other tests open."""
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)
