"""A site whose finished jobs are archived."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.clients.default import default_client
from tests.integration.qless.archive.tools import archive_settings


@pytest.fixture
def site(settings: Any, valkey: Any, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The queue of the site, empty; the database has no archived jobs."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": archive_settings(valkey_url)}
    client = default_client()
    monkeypatch.setattr(client, "clock", Clock())
    return client


class Clock:
    """The time of the client, which a test may move."""

    def __init__(self) -> None:
        self.skew = 0.0

    def __call__(self) -> float:
        return time.time() + self.skew


@pytest.fixture
def clock(site: Client) -> Clock:
    clock = site.clock
    assert isinstance(clock, Clock)
    return clock
