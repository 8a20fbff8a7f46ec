"""Tasks, and workers that run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django.qless import client
from resty_django.qless.tasks import eager
from resty_django.qless.worker.handlers import resolve_handler
from tests.integration.qless.tasks import examples
from tests.integration.qless.worker.conftest import InProcessWorker

MODULE = "tests.integration.qless.tasks.examples"


@pytest.fixture
def site(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Any]:
    """Settings whose job queue is the server of the tests, and empty."""
    section = {"URL": valkey_url, "MODULES": [MODULE]}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    examples.GO.clear()
    examples.TRAIL.clear()
    resolve_handler.cache_clear()
    eager.outcomes.clear()
    eager.groups.clear()
    yield settings
    client.close()


@pytest.fixture
def start_worker(site: Any, valkey_url: str) -> Iterator[Callable[..., InProcessWorker]]:
    """Starts workers in threads, which end with the test."""
    workers: list[InProcessWorker] = []

    def start(**options: Any) -> InProcessWorker:
        workers.append(InProcessWorker(valkey_url, **options).start())
        return workers[-1]

    yield start
    examples.GO.set()
    for worker in workers:
        if worker.thread.is_alive():
            worker.stop(0)


@pytest.fixture
def running(start_worker: Callable[..., InProcessWorker]) -> InProcessWorker:
    """One worker of the queue `q`."""
    return start_worker()
