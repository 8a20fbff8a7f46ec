"""A site with objects of every kind that the API shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from resty_django.ids import service
from resty_django.qless import Client
from resty_django.qless.clients.default import default_client
from tests.integration.ids.admin_tools import make_counter, make_rule
from tests.integration.limits.policy_tools import limits_site as limits_site
from tests.integration.qless.admin.tools import fill


@pytest.fixture
def api_site(
    limits_site: dict[str, Any], settings: Any, valkey: Any, valkey_url: str, transactional_db: None, admin_user: User
) -> Iterator[Client]:
    """Queues with jobs in each state, a rule with a counter, and the superuser of pytest-django."""
    settings.RESTY_DJANGO = {**limits_site, "QLESS": {"URL": valkey_url, "WORKER_NAME": "here-1"}}
    make_counter(make_rule("order"))
    client = default_client()
    fill(client)
    service.stop()
    yield client
    service.stop()
