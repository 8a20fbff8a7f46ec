"""Log servers of the tests, and loggers that ship to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.logs import SocketHandler
from tests.logserver import LogServer, make_certificate

Ship = Callable[..., tuple[logging.Logger, SocketHandler]]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(params=["tcp", "tls", "unix"])
def stream(request: pytest.FixtureRequest, tmp_path: Path, certificate: Path) -> Iterator[LogServer]:
    """A running server of each kind that has connections."""
    with LogServer(request.param, tmp_path, certificate if request.param == "tls" else None) as server:
        yield server


@pytest.fixture
def tcp(tmp_path: Path) -> Iterator[LogServer]:
    with LogServer("tcp", tmp_path) as server:
        yield server


@pytest.fixture
def ship() -> Iterator[Ship]:
    """Create a separate logger with a handler; the handler is closed in the end."""
    created: list[SocketHandler] = []

    def make(server: LogServer, **options: Any) -> tuple[logging.Logger, SocketHandler]:
        handler = SocketHandler(**{**server.options, **options})
        created.append(handler)
        logger = logging.Logger("shop")
        logger.addHandler(handler)
        return logger, handler

    yield make
    for handler in created:
        handler.close()
