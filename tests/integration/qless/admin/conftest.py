"""The site's job queue on a real server, for the tests of its admin."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.clients.default import default_client


@pytest.fixture
def jobs_site(settings: Any, valkey: Any, valkey_url: str) -> Client:
    """The queue of the site, empty."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "WORKER_NAME": "here-1"}}
    return default_client()
