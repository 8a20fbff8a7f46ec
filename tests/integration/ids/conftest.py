"""Fixtures of the tests of the ID service: rules, a stop after each test, and processes that request IDs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from resty_django.ids import next_id, service
from resty_django.ids.errors import Unavailable
from resty_django.ids.models import IdRule
from resty_django.ids.store import NameGate
from tests import processes
from tests.servers import eventually

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(autouse=True)
def _stop_the_service(_django_db_marker: None) -> Iterator[None]:
    """Each test begins without a service in this process and leaves none."""
    service.stop()
    yield
    service.stop()


@pytest.fixture
def make_rule() -> Callable[..., IdRule]:
    """Save a valid rule; without options it is called order, never resets and shows nine digits."""

    def make(name: str = "order", source: str = "{counter:09d}", **options: Any) -> IdRule:
        rule = IdRule(name=name, source=source, **{"max_counter": 999_999_999, **options})
        rule.full_clean()
        rule.save()
        return rule

    return make


@pytest.fixture
def order(make_rule: Callable[..., IdRule]) -> IdRule:
    """The rule order, with segments of 100."""
    return make_rule(segment_size=100)


class Worker(processes.LineProcess):
    """A separate process that requests IDs and prints each of them at once."""

    def __init__(self, *args: str, ids: dict[str, Any] | None = None) -> None:
        env = {"RESTY_DB_NAME": str(connection.settings_dict["NAME"]), "RESTY_WORKER_IDS": repr(ids or {})}
        super().__init__([str(WORKER), *args], env, read=lambda line: line.removesuffix("\n"))

    def wait_for(self, count: int, seconds: float = 20.0) -> list[str]:
        """The first lines, at least `count` of them."""
        self.wait_until(lambda: len(self.lines) >= count, seconds, f"{count} lines")
        return self.lines


@pytest.fixture
def worker(transactional_db: None) -> Iterator[Callable[..., Worker]]:
    """Start a `Worker`; all are ended after the test."""
    started: list[Worker] = []

    def start(*args: str, ids: dict[str, Any] | None = None) -> Worker:
        process = Worker(*args, ids=ids)
        started.append(process)
        return process

    yield start
    for process in started:
        if not process.process.stdout.closed:
            process.end()


@contextmanager
def another_connection() -> Iterator[BaseDatabaseWrapper]:
    """A second connection of this thread to the test database."""
    connection = connections["default"].copy()
    connection.inc_thread_sharing()
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def locked() -> Callable[[], AbstractContextManager[None]]:
    """A context in which somebody else holds a lock that no reservation gets past."""

    @contextmanager
    def lock() -> Iterator[None]:
        with another_connection() as connection:
            connection.ensure_connection()
            if connection.vendor != "sqlite":
                connection.set_autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute(
                    {
                        "sqlite": "BEGIN EXCLUSIVE",
                        "mysql": "LOCK TABLES resty_ids_idcounter WRITE, resty_ids_idrule WRITE",
                        "postgresql": "LOCK TABLE resty_ids_idcounter, resty_ids_idrule IN ACCESS EXCLUSIVE MODE",
                    }[connection.vendor]
                )
                try:
                    yield
                finally:
                    cursor.execute("UNLOCK TABLES" if connection.vendor == "mysql" else "ROLLBACK")

    return lock


def served(ids: list[str], app: str = "") -> bool:
    """Request an ID and add it to `ids`. Return False if none was available."""
    try:
        ids.append(next_id("order", app))
    except Unavailable:
        return False
    return True


@contextmanager
def away(table: str, column: str = "") -> Iterator[None]:
    """A context in which a table, or one of its columns, is missing."""
    renamings = [(table, "TO resty_ids_away"), ("resty_ids_away", f"TO {table}")]
    if column:
        renamings = [(table, f"COLUMN {column} TO {column}_away"), (table, f"COLUMN {column}_away TO {column}")]
    there, back = (f"ALTER TABLE {old} RENAME {new}" for old, new in renamings)
    with connection.cursor() as cursor:
        cursor.execute(there)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(back)


@pytest.fixture
def broken() -> Callable[[], AbstractContextManager[None]]:
    """A context in which every reservation fails at once, since the table of counters is missing."""
    return partial(away, "resty_ids_idcounter")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections made from now on do not wait long for a lock of SQLite."""
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", 0.3)


@pytest.fixture
def no_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of NEW_NAMES_PER_SECOND do not come back, however long the test takes."""
    admit = NameGate.admit
    monkeypatch.setattr(NameGate, "admit", lambda gate, now: admit(gate, 0.0))


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., bool]:
    return eventually
