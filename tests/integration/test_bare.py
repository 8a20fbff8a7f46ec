"""A site without optional packages, and what the start of a site imports."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory

from resty_django.admin.deferred import DeferredAdmin

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
COMMAND = 'pip install "resty-django[{extra}]"'
JOBS = 'Background jobs need the package redis, which is not installed. Run: pip install "resty-django[redis]".'
HEAVY = (
    *("redis", "django_redis", "rest_framework.schemas", "drf_spectacular", "celery"),
    *("kombu", "lupa", "prometheus_client", "uvloop", "lmdb", "resty_django.qless.clients.client"),
    *("resty_django.cache.mlcache.cache", "resty_django.shdict.overview", "resty_django.health.site"),
)
"""Modules that `manage.py check` must not import, because they load slowly."""
START = f"""
import json
import sys
import django
from django.conf import settings
import resty_django
from tests.admin_site import CONTRIB, MIDDLEWARE, TEMPLATES
settings.configure(
    SECRET_KEY="start",
    INSTALLED_APPS=[*CONTRIB, "rest_framework", *resty_django.ALL_APPS],
    MIDDLEWARE=MIDDLEWARE,
    ROOT_URLCONF="__main__",
    TEMPLATES=TEMPLATES,
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
)
django.setup()
from django.contrib import admin
from django.core.management import call_command
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
call_command("check", stdout=sys.stderr)
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def run(*args: str) -> Any:
    done = subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the messages of the parts of a site without optional packages; all other parts worked."""
    answers: dict[str, Any] = run("-m", "tests.bare_site", str(tmp_path_factory.mktemp("bare")))
    return answers


def test_all_parts_work_without_optional_packages_and_jobs_name_theirs(report: dict[str, Any]) -> None:
    for feature in ("delay", "queues", "runqless", "qless_recurring", "qless_workers"):
        assert report[feature] == JOBS, feature
    assert f"No job queue is configured: {JOBS}" in report["resty_check"]
    assert html.escape(JOBS) in report["overview"]


def test_each_part_names_its_extra(report: dict[str, Any]) -> None:
    extras = {
        "redis": ("dict", "connection"),
        "cron": ("cron",),
        "api": ("throttles", "fields", "api", "ids api", "jobs api"),
        "celery": ("celery", "celery jobs", "runqless via"),
        "lua": ("lua",),
        "tasks": ("tasks",),
    }
    for extra, parts in extras.items():
        for feature in parts:
            if feature in report:
                assert report[feature].endswith(f"which is not installed. Run: {COMMAND.format(extra=extra)}."), feature
    status, text = report["metrics"]
    assert status == 503
    assert COMMAND.format(extra="metrics") in text


def test_the_one_page_of_jobs_shows_the_command(report: dict[str, Any]) -> None:
    status, text = report["page"]
    assert status == 503
    assert f"<code>{html.escape(COMMAND.format(extra='redis'))}</code>" in text
    assert "style=" not in text.partition('id="content-main"')[2].partition("</div>")[0]


def test_the_system_check_is_as_serious_as_the_need(report: dict[str, Any]) -> None:
    assert report["check"] == [["resty_qless.I001", JOBS]]
    assert report["check, CACHES"] == [["resty_qless.W001", JOBS]]
    assert report["check, QLESS"] == [["resty_qless.E006", JOBS]]


def test_the_start_of_a_site_imports_nothing_heavy() -> None:
    assert run("-c", START) == []


def test_admin_classes_that_stand_in_have_the_addresses_of_those_behind_them() -> None:
    deferred = [model_admin for model_admin in admin.site._registry.values() if isinstance(model_admin, DeferredAdmin)]
    assert len(deferred) > 14

    def addresses(model_admin: Any) -> list[tuple[Any, ...]]:
        return [
            (pattern.name, str(pattern.pattern), getattr(pattern.callback, "_non_atomic_requests", None))
            for pattern in model_admin.get_urls()
        ]

    request = RequestFactory().get("/")
    users = AnonymousUser(), User(username="root", is_superuser=True)
    for stand_in in deferred:
        full = stand_in.full
        assert addresses(stand_in) == addresses(full)
        assert full.check() == []
        for request.user in users:
            assert stand_in.get_model_perms(request) == (full.get_model_perms(request) if stand_in.listed else {})
            assert stand_in.has_view_or_change_permission(request) == full.has_view_or_change_permission(request)
        assert type(full) is not type(stand_in)
