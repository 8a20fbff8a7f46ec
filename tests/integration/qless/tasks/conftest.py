"""Tasks, and workers that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django.qless import client, eager
from resty_django.qless.worker.entries import entry_of
from tests.integration.qless.tasks import examples
from tests.integration.qless.worker.conftest import Here

MODULE = "tests.integration.qless.tasks.examples"


@pytest.fixture
def site(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Any]:
    """Settings whose job queue is the server of the tests, and empty."""
    section = {"URL": valkey_url, "MODULES": [MODULE]}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    examples.GO.clear()
    examples.TRAIL.clear()
    entry_of.cache_clear()
    eager.outcomes.clear()
    yield settings
    client.close()


@pytest.fixture
def here(site: Any, valkey_url: str) -> Iterator[Callable[..., Here]]:
    """Starts workers in threads, which end with the test."""
    made: list[Here] = []

    def start(**given: Any) -> Here:
        made.append(Here(valkey_url, **given).start())
        return made[-1]

    yield start
    examples.GO.set()
    for each in made:
        if each.thread.is_alive():
            each.stop(0)


@pytest.fixture
def running(here: Callable[..., Here]) -> Here:
    """One worker of the queue `q`."""
    return here()
