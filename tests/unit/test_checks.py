"""System checks and `manage.py resty_check`."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import checks
from django.core.management import CommandError, call_command
from pytest_django import Settings

import resty_django
from resty_django import address, health
from resty_django.checks import TIMEOUTS, check_core, check_databases, check_settings
from resty_django.health import Finding


def ids_of(messages: list[checks.CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


@pytest.mark.parametrize(
    ("engine", "options", "missing"),
    [
        ("django.db.backends.mysql", {"connect_timeout": 5}, "read_timeout, write_timeout"),
        ("django.contrib.gis.db.backends.mysql", dict.fromkeys(TIMEOUTS["mysql"], 5), ""),
        ("django.db.backends.postgresql", {"connect_timeout": 0}, "connect_timeout, tcp_user_timeout"),
        ("django.db.backends.postgresql", {"connect_timeout": 5, "tcp_user_timeout": 9000}, ""),
        ("django.db.backends.sqlite3", {}, ""),
    ],
)
def test_databases_whose_driver_may_wait_without_end_are_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, engine: str, options: Any, missing: str
) -> None:
    monkeypatch.setitem(settings.DATABASES, "reports", {"ENGINE": engine, "OPTIONS": options})
    text = f"The database 'reports' has no {missing}, so calls hang if its server stops responding."
    assert [(message.id, message.msg) for message in check_databases()] == [("resty_django.W007", text)] * bool(missing)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No probes but those that the test registers."""
    monkeypatch.setattr(health, "_probes", {})


def resty_check(*arguments: str) -> tuple[int, str]:
    output = io.StringIO()
    try:
        call_command("resty_check", *arguments, stdout=output)
    except CommandError as error:
        return error.returncode, output.getvalue()
    return 0, output.getvalue()


def test_valid_settings_yield_no_message(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": 2, "OFFSET": 1, "LUA": {"MILLISECONDS": 20}}}
    assert check_settings() == []


@pytest.mark.parametrize(
    ("raw", "check_id", "page_anchor"),
    [
        ({"IDS": {"STEPP": 1}}, "resty_django.E001", "reference/settings.html#ids"),
        ({"IDS": {"STEP": "1"}}, "resty_django.E002", "reference/settings.html#ids-step"),
        (7, "resty_django.E002", "reference/settings.html#settings"),
        ({"IDS": {"UDP": {"PORT": 0}}}, "resty_django.E003", "reference/settings.html#ids-udp-port"),
        ({"IDS": {"UDP": {"HOST": "::"}}}, "resty_django.W003", "reference/settings.html#ids-udp-host"),
        ({"IDS": {"UDP": {"KEYS": ["short"]}}}, "resty_django.W002", "reference/settings.html#ids-udp-keys"),
    ],
)
def test_each_kind_of_mistake_has_its_id_and_place(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, raw: Any, check_id: str, page_anchor: str
) -> None:
    settings.RESTY_DJANGO = raw
    (message,) = check_settings()
    assert message.id == check_id
    assert "docs/" not in f"{message.msg} {message.hint}"
    monkeypatch.setattr(address, "SITE", "https://example.org")
    assert f"See https://example.org/{page_anchor}." in str(check_settings()[0].hint)


def test_all_mistakes_are_reported_at_once(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"NOPE": 1, "IDS": {"STEP": "1", "UDP": {"PORT": 0, "HOSTS": ""}}}
    assert sorted(str(check_id) for check_id in ids_of(check_settings())) == [
        "resty_django.E001",
        "resty_django.E001",
        "resty_django.E002",
        "resty_django.E003",
    ]


def test_a_part_without_its_package_names_the_extra(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "lupa" else real(name))
    settings.RESTY_DJANGO = {"IDS": {"LUA": {"MEMORY": 2**20}}}
    (message,) = check_settings()
    assert message.id == "resty_django.E004"
    assert "resty-django[lua]" in message.msg
    settings.RESTY_DJANGO = {"IDS": {"STEP": 1}}
    assert check_settings() == []


def test_the_engine_redis_needs_its_packages(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"hits": {"ENGINE": "redis"}, "events": {}}}
    assert check_settings() == []
    for gone, named in (
        (["django_redis"], "the package django-redis, which is"),
        (["redis", "django_redis"], "the packages redis and django-redis, which are"),
    ):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, gone=gone: None if name in gone else real(name))
        (message,) = check_settings()
        assert message.id == "resty_django.E004"
        assert message.msg == (
            f'RESTY_DJANGO["SHARED_DICTS"]["hits"]["ENGINE"] needs {named} not installed. '
            'Run: pip install "resty-django[redis]".'
        )
        assert message.hint is None
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"hits": {"ENGINE": "lmdb"}}}
    assert check_settings() == []


CHECK = """
import sys
sys.modules.update(dict.fromkeys({gone!r}))
import django
from django.conf import settings
settings.configure(**{options!r})
django.setup()
from django.core.management import call_command
call_command("check")
"""


def checked(gone: list[str], **options: Any) -> str:
    """Return the output of `manage.py check` for a site with these settings and without some packages."""
    code = CHECK.format(gone=gone, options=options)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def test_manage_check_reports_a_site_without_redis() -> None:
    cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
    options: dict[str, Any] = {"INSTALLED_APPS": ["resty_django"], "CACHES": {"default": cache}}
    site_settings = {"SHARED_DICTS": {"hits": {"ENGINE": "redis"}}}
    output = checked(["redis", "django_redis"], RESTY_DJANGO=site_settings, **options)
    assert "(resty_django.E004)" in output
    assert "resty-django[redis]" in output
    assert checked(["redis", "django_redis"], **options) == ""


def test_each_app_reports_that_the_core_app_is_missing(settings: Settings) -> None:
    assert check_core() == []
    settings.INSTALLED_APPS = ["django.contrib.contenttypes", "resty_django.ids"]
    (message,) = check_core()
    assert message.id == "resty_django.E005"
    assert message.msg == "resty_django.ids is in INSTALLED_APPS, but the app it requires, resty_django, is not."
    assert 'Add "resty_django" to INSTALLED_APPS' in str(message.hint)


@pytest.mark.parametrize("app", sorted(set(resty_django.ALL_APPS) - {"resty_django"}))
def test_manage_check_reports_an_app_without_the_core_app(app: str) -> None:
    admin = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")]
    assert f"(resty_django.E005) {app} is in INSTALLED_APPS" in checked([], INSTALLED_APPS=[app])
    assert f"(resty_django.E005) {app} is in INSTALLED_APPS" in checked([], INSTALLED_APPS=[*admin, app])


def test_a_section_of_an_app_that_is_not_installed_is_a_warning(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": 1}}
    settings.INSTALLED_APPS = ["resty_django", "django.contrib.contenttypes"]
    assert ids_of(check_settings()) == ["resty_django.W001"]


def test_manage_check_runs_the_checks_of_settings(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": "1"}}
    assert "resty_django.E002" in ids_of(checks.run_checks(tags=["resty_django"]))


@pytest.mark.usefixtures("probes")
@pytest.mark.parametrize(
    ("level", "arguments", "code"),
    [
        ("ok", [], 0),
        ("warning", [], 0),
        ("warning", ["--fail-on", "warning"], 1),
        ("error", [], 2),
        ("error", ["--fail-on", "warning"], 2),
    ],
)
def test_resty_check_exits_by_the_worst_level(level: health.Level, arguments: list[str], code: int) -> None:
    health.register("one", lambda: [Finding("ok", "a", "Fine."), Finding(level, "b", "So so.")])
    assert resty_check(*arguments)[0] == code
    assert resty_check("--json", *arguments)[0] == code


@pytest.mark.usefixtures("probes")
def test_json_names_probe_level_subject_and_message() -> None:
    health.register("one", lambda: [Finding("warning", "rule a", "97 % used.")])
    _, output = resty_check("--json")
    assert json.loads(output) == {
        "status": "warning",
        "findings": [{"probe": "one", "level": "warning", "subject": "rule a", "message": "97 % used."}],
    }


@pytest.mark.usefixtures("probes")
def test_the_table_has_a_line_for_each_finding() -> None:
    health.register("one", lambda: [Finding("ok", "a", "Fine."), Finding("error", "longer", "Broken.")])
    _, output = resty_check("--no-color")
    assert output.splitlines() == ["ok       one  a       Fine.", "error    one  longer  Broken."]


@pytest.mark.usefixtures("probes")
def test_a_probe_that_raises_is_an_error_and_the_others_still_run() -> None:
    def broken() -> Iterator[Finding]:
        yield Finding("ok", "first", "Fine.")
        raise RuntimeError("no luck")

    health.register("broken", broken)
    health.register("other", lambda: [Finding("ok", "x", "Fine.")])
    code, output = resty_check("--json")
    assert code == 2
    rows = json.loads(output)["findings"]
    assert [row["level"] for row in rows] == ["ok", "error", "ok"]
    assert rows[1]["message"] == "The probe failed: RuntimeError: no luck"


@pytest.mark.usefixtures("probes")
def test_only_runs_the_named_probe_and_refuses_unknown_ones() -> None:
    health.register("one", lambda: [Finding("error", "a", "Bad.")])
    health.register("two", lambda: [Finding("ok", "b", "Fine.")])
    assert resty_check("--only", "two")[0] == 0
    with pytest.raises(CommandError, match="--only three"):
        call_command("resty_check", "--only", "three")


def test_wrong_settings_are_reported_and_not_a_crash(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": "1"}}
    code, output = resty_check("--json", "--only", "settings")
    assert code == 2
    assert json.loads(output)["findings"][0]["subject"] == "resty_django.E002"


@pytest.mark.db
@pytest.mark.django_db
def test_databases_that_answer_are_ok() -> None:
    code, output = resty_check("--json", "--only", "databases")
    assert code == 0, output
    (row,) = json.loads(output)["findings"]
    assert (row["level"], row["subject"]) == ("ok", "database default")


@pytest.mark.redis
@pytest.mark.parametrize("backend", ["django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"])
def test_redis_caches_answer_ping(settings: Settings, valkey_url: str, backend: str) -> None:
    settings.CACHES = {
        "default": {"BACKEND": backend, "LOCATION": valkey_url},
        "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    }
    _, output = resty_check("--json", "--only", "caches")
    (row,) = json.loads(output)["findings"]
    assert (row["level"], row["subject"]) == ("ok", "cache default")


@pytest.mark.services
def test_an_outside_redis_answers_ping(settings: Settings, outside_redis_url: str) -> None:
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": outside_redis_url}}
    _, output = resty_check("--json", "--only", "caches")
    (row,) = json.loads(output)["findings"]
    assert (row["level"], row["subject"]) == ("ok", "cache default")


def test_a_redis_that_is_down_is_an_error_even_when_the_cache_hides_it(settings: Settings) -> None:
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
            "OPTIONS": {"IGNORE_EXCEPTIONS": True},
        }
    }
    code, output = resty_check("--json", "--only", "caches")
    assert code == 2
    assert "It does not respond: ConnectionError" in json.loads(output)["findings"][0]["message"]
