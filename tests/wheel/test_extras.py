"""The wheel in bare environments: one without extras, one per extra. A startproject site calls each part."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wheel.conftest import Environment, run

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

PARTS = Path(__file__).with_name("parts.py")
EXTRAS = [
    "",
    "jobs",
    "cache",
    "api",
    "lua",
    "redis",
    "postgres",
    "mysql",
    "celery",
    "cron",
    "tasks",
    "embedded",
    "metrics",
    "zstd",
    "all",
]
SETTINGS = """
import os, resty_django
INSTALLED_APPS += resty_django.ALL_APPS
ALLOWED_HOSTS = ["testserver"]
if os.environ["EXTRA"] in ("api", "all"):
    INSTALLED_APPS += ["rest_framework", "drf_spectacular"]
    REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
if os.environ["EXTRA"] in ("redis", "jobs", "cache", "all"):
    CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}}
    RESTY_DJANGO = {"QLESS": {"MODULES": ["parts_jobs"], "URL": f"{os.environ['REDIS_URL'].rpartition('/')[0]}/1"}}
if os.environ["EXTRA"] in ("mysql", "postgres"):
    DATABASES = {"default": {
        "ENGINE": "django.db.backends." + {"mysql": "mysql", "postgres": "postgresql"}[os.environ["EXTRA"]],
        "HOST": "127.0.0.1", "NAME": os.environ["DATABASE"],
        "USER": {"mysql": "root", "postgres": "postgres"}[os.environ["EXTRA"]],
        "OPTIONS": {
            "mysql": {"isolation_level": "read committed", "read_timeout": 30, "write_timeout": 30},
            "postgres": {"tcp_user_timeout": 30_000},
        }[os.environ["EXTRA"]] | {"connect_timeout": 5},
    }}
"""
JOBS = """
from resty_django.qless import task

@task
def double(number):
    return 2 * number
"""
CRON = """
from resty_django.qless import task

@task(cron="0 4 * * *", queue="nightly")
def clean_up():
    return None
"""
NEEDS: dict[str, set[str]] = {
    "ids_by_lua": {"lua"},
    "metrics": {"metrics"},
    "http_api": {"api"},
    "throttles": {"api"},
    "jobs": {"redis", "jobs", "cache"},
    "redis_dictionary": {"redis", "jobs", "cache"},
    "cron": {"cron", "jobs"},
    "compression": {"zstd", "cache"},
    "celery_txids": {"celery"},
    "celery_bridge": {"celery"},
    "django_tasks": {"tasks"} if sys.version_info < (3, 12) else set(),  # later, pip installs Django 6 or newer
}
"""The extras of which each part in `parts.py` needs one. All others work without."""


def missing_with(extra: str) -> set[str]:
    """The parts that one extra is not enough for."""
    return {feature for feature, extras in NEEDS.items() if extras and extra not in {*extras, "all"}}


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Any:
    """The name of a new database of the server that the extra is for; empty where there is none."""
    extra = request.getfixturevalue("extra")
    name = f"resty_wheel_{os.getpid()}"
    if extra == "mysql":
        command: tuple[str, ...] = ("mariadb", "--host=127.0.0.1", "--protocol=tcp", "--user=root", "--execute")
    elif extra == "postgres":
        command = ("psql", "--host=127.0.0.1", "--username=postgres", "--quiet", "--command")
    else:
        yield ""
        return
    folder = Path(__file__).parent
    run(*command, f"DROP DATABASE IF EXISTS {name}", cwd=folder)
    run(*command, f"CREATE DATABASE {name}", cwd=folder)
    yield name
    run(*command, f"DROP DATABASE {name}", cwd=folder)


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda extra: extra or "none")
def test_every_part_works_or_names_its_extra(
    extra: str, environment: Callable[..., Environment], database: str, valkey_url: str, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    installed = environment(*filter(None, [extra]))
    run(installed.python, "-m", "django", "startproject", "mysite", site, cwd=tmp_path)
    with (site / "mysite" / "settings.py").open("a") as settings:
        settings.write(SETTINGS)
    (site / "parts_jobs.py").write_text(JOBS)
    (site / "parts_cron.py").write_text(CRON)
    env = {
        "EXTRA": extra,
        "DATABASE": database,
        "REDIS_URL": valkey_url,
        "PYTHONWARNINGS": "error::DeprecationWarning:resty_django",
    }
    run(installed.python, "manage.py", "check", "--fail-level", "WARNING", cwd=site, **env)
    run(installed.python, "manage.py", "migrate", "--verbosity", "0", cwd=site, **env)
    run(installed.python, "manage.py", "makemigrations", "--check", "--dry-run", cwd=site, **env)
    outcomes = json.loads(run(installed.python, PARTS, cwd=site, **env).splitlines()[-1])
    missing = {name: text for name, text in outcomes.items() if text != "works"}
    assert set(missing) == missing_with(extra), missing
    for name, text in missing.items():
        command = re.search(r'pip install "resty-django\[(\w+)\]"', text)
        assert command, (name, text)
        assert command[1] in NEEDS[name]
