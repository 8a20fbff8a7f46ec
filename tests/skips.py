"""A pytest plugin: with `--no-skips` (the default where `CI` is set), a skip that nobody expects is a failure.

A test that a missing program or server would skip says so by `pytest.skip`, and needs no separate case for CI.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, Final

import pytest

EXPECTED: Final = frozenset(
    {
        # Combinations of parameters that mean nothing.
        "LMDB waits for nothing",
        "Redis has the space of its server",
        # Features of only some versions and databases; CI runs the others too.
        "Django has this middleware from 6.0 on",
        "before Django 6.1, tasks cannot be pickled",
        "Django 6.0 has no options of backends in @task",
        "only Django 6.0 refuses options itself",
        "RESTY_TEST_DB names no server",
        "makes an SQLite database read-only",
        "of MariaDB and MySQL alone",
        "The worker of this test has a database file.",
    }
)
"""The reasons that may occur in a complete run."""

PREFIX: Final = "Skipped: "


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=bool(os.environ.get("CI")),
        help="A skip whose reason is not in tests/skips.py is a failure.",
    )


def unexpected(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Return the reason of a skip that is not expected; None for all other reports."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix(PREFIX)
    return None if reason in EXPECTED else reason


def _fail(report: Any, config: pytest.Config) -> None:
    reason = unexpected(report) if config.getoption("no_skips") else None
    if reason is not None:
        report.outcome = "failed"
        report.longrepr = f"Skipped, though CI runs every test: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    _fail(outcome.get_result(), item.config)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    outcome = yield
    _fail(outcome.get_result(), collector.config)
