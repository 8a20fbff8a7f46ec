"""Tasks, and workers that run them."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import client
from resty_django.qless.clients.recurring import RecurringJob
from resty_django.qless.job_classes import discover
from resty_django.qless.tasks import eager
from resty_django.qless.tasks.schedule import declare, scheduled
from resty_django.qless.worker.handlers import resolve_handler
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks import examples
from tests.integration.qless.worker.conftest import InProcessWorker, StartInProcess, in_process_workers

MODULE = "tests.integration.qless.tasks.examples"


@pytest.fixture
def site(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Any]:
    """Settings whose job queue is the server of the tests, and empty."""
    change_settings(settings, URL=valkey_url, MODULES=[MODULE])
    examples.GO.clear()
    examples.TRAIL.clear()
    resolve_handler.cache_clear()
    eager.outcomes.clear()
    eager.groups.clear()
    yield settings
    client.close()


HEAD = "from resty_django.qless import task\n\n\n"
Deploy = Callable[..., None]


@pytest.fixture
def deploy(site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Replace the modules of a site by others, as a process that starts with new code does. None: no such module."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    modules: set[str] = set()

    def forget() -> None:
        for name in [name for name, old in scheduled.items() if old.path.startswith(tuple(modules))]:
            del scheduled[name]
        for module in modules:
            sys.modules.pop(module, None)
            (tmp_path / f"{module}.py").unlink(missing_ok=True)
        importlib.invalidate_caches()
        gc.collect()  # a new process does not know the old tasks

    def deploy(**codes: str | None) -> None:
        forget()
        modules.update(codes)
        for module, code in codes.items():
            if code is not None:
                (tmp_path / f"{module}.py").write_text(HEAD + code)
        change_settings(site, MODULES=list(codes))

    yield deploy
    forget()


def work(*queues: str) -> None:
    """Declare the periodic tasks of these queues, or of all, as a worker does every 20 seconds."""
    discover()
    declare(client, queues or None)


def recurring_job(jid: str) -> RecurringJob:
    """Return a recurring job that must exist."""
    job = client.jobs.get(jid)
    assert isinstance(job, RecurringJob)
    return job


@pytest.fixture
def start_worker(site: Any, valkey_url: str) -> Iterator[StartInProcess]:
    with in_process_workers(valkey_url) as start:
        yield start
        examples.GO.set()


@pytest.fixture
def running(start_worker: StartInProcess) -> InProcessWorker:
    """One worker of the queue `q`."""
    return start_worker()
