"""A site whose tasks go through the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from resty_django.qless import Client, client
from resty_django.qless.clients.default import default_client
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks import examples

MODULE = "tests.integration.qless.tasks.examples"


@pytest.fixture
def outbox(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Client]:
    """The queue of a site with an outbox. Both are empty."""
    change_settings(settings, URL=valkey_url, MODULES=[MODULE], OUTBOX=True)
    examples.TRAIL.clear()
    yield default_client()
    client.close()
