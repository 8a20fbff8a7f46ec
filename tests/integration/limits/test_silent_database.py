"""A database that says nothing keeps the thread of the limits for no longer than its bound."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django.limits.policies import registry
from tests.integration.limits.policy_tools import make_policy
from tests.tcpproxy import Proxy

pytestmark = [
    pytest.mark.db,
    pytest.mark.services,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("limits_site"),
]


def eventually(check: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_policies_are_read_again_after_a_silence(
    silent_database: Proxy, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RESTY_DJANGO["LIMITS"]["REFRESH"] = 0.1
    monkeypatch.setattr(registry, "DATABASE_TIMEOUT", 1.0)
    row = make_policy("pay", description="before")
    registry.refresh_policies()
    registry.refresh_soon()
    eventually(lambda: silent_database.accepted >= 2)  # the thread of the limits reads again and again
    silent_database.silence(new=True)
    accepted = silent_database.accepted
    eventually(lambda: silent_database.accepted >= accepted + 2)  # it gave up on the silent connection, and tries again
    silent_database.silence()
    type(row).objects.filter(pk=row.pk).update(description="after")
    eventually(lambda: registry.get_policy("pay").spec.description == "after")
