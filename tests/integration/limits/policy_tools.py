"""Policies, people and whole processes for the tests of policies and their admin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from resty_django.events import runtime as events
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.policies.policy_set import Policy
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.reporter import stats
from resty_django.processes.background import background
from resty_django.shdict import shdicts
from tests import processes
from tests.staff import signed_in

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("policy_worker.py")
POLICIES = "/admin/resty_limits/limitpolicy/"
HOSTILE = "<b>\"it's\\&{{x}}%s</b>é\u202e\x00"
"""A key that somebody may send."""


def make_policy(name: str = "pay", algorithm: str = "fixed_window", **fields: Any) -> LimitPolicy:
    numbers: dict[str, Any] = {"limit": 3, "window": "1h"} if algorithm == "fixed_window" else {}
    row = LimitPolicy(**{"name": name, "algorithm": algorithm, "key": "all", **numbers, **fields})
    row.full_clean()
    row.save()
    return row


def policy_of(name: str = "pay") -> Policy:
    policy = registry.get_policy(name)
    assert policy is not None
    return policy


@contextmanager
def breakable(table: str) -> Iterator[Callable[[bool], None]]:
    """Rename a table of the limits (True) or restore its name; at the end, it has its name again."""
    away = False

    def change(breaking: bool) -> None:
        nonlocal away
        if away != breaking:
            first, second = (table, "away") if breaking else ("away", table)
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE resty_limits_{first} RENAME TO resty_limits_{second}")
            away = breaking

    yield change
    change(False)


@pytest.fixture
def limits_site(settings: Any, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A site with separate dictionaries, whose policies, figures and events begin and end with the test."""
    site = {
        "SHARED_DICTS": {name: {"PATH": str(tmp_path / "dicts")} for name in ("default", "bans", "events", "limits")},
        "LIMITS": {"REFRESH": 60.0},
    }
    clean_up()
    settings.RESTY_DJANGO = site
    yield site
    clean_up()
    shdicts.close_all()


def clean_up() -> None:
    background.stop()
    stats.flush()
    registry.declarations.clear()
    registry.forget_policies()
    stats.reset()
    events.reset()


person = partial(signed_in, "resty_limits")


@pytest.fixture
def undeclared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that other tests have declared are not asked."""
    monkeypatch.setattr(catalog, "_limits", {})


def key_page(client: Client, key: str) -> str:
    reply = client.get(f"{POLICIES}limits/key/", {"key": key})
    assert reply.status_code == 200
    return reply.content.decode()


class Worker(processes.LineProcess):
    """A separate process that prints a JSON list for each event; see `policy_worker`."""

    def __init__(self, what: str, site: dict[str, Any], caches: dict[str, Any] | None = None, **options: Any) -> None:
        env = {
            "RESTY_DB_NAME": str(connection.settings_dict["NAME"]),
            "RESTY_WORKER_SITE": json.dumps({"RESTY_DJANGO": site, **({"CACHES": caches} if caches else {})}),
        }
        super().__init__([str(WORKER), what, json.dumps(options)], env)

    def wait_for(self, check: Callable[[list[Any]], bool], seconds: float = 30.0) -> list[Any]:
        """The first line that `check` accepts."""
        self.wait_until(lambda: any(map(check, list(self.lines))), seconds, "such line")
        return next(list(line) for line in self.lines if check(line))

    def finish(self) -> str:
        """Close its standard input and wait; what it wrote to standard error."""
        self.process.stdin.close()
        return self.end(None)


@pytest.fixture
def worker(limits_site: dict[str, Any], transactional_db: None) -> Iterator[Callable[..., Worker]]:
    """Start a `Worker` on the site of the test; all are ended after it."""
    started: list[Worker] = []

    def start(what: str, caches: dict[str, Any] | None = None, **options: Any) -> Worker:
        from django.conf import settings

        started_worker = Worker(what, settings.RESTY_DJANGO, caches, **options)
        started.append(started_worker)
        return started_worker

    yield start
    for process in started:
        if not process.process.stdout.closed:
            process.end()
