"""The page about the job queue: what a new operator asks for, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client as Browser
from django_redis.pool import ConnectionFactory

import resty_django
from resty_django.qless import Client
from resty_django.qless.admin import shown, verbs
from resty_django.qless.admin.about import DOCS, PAGES
from resty_django.qless.admin.base import DOORS
from resty_django.qless.admin.words import DEEDS, STATES
from resty_django.qless.core import source
from tests.docs_reader import page
from tests.integration.qless.admin.tools import HOSTILE, VERBS, boss, jobs_site, path, person, text_of

__all__ = ["boss", "jobs_site"]

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

SECRET = "s3cr3t-of-the-server"


def told(text: str) -> dict[str, str]:
    """What the tables of the page tell, as plain text by label."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', text, re.DOTALL)
    return {plain(label): plain(value) for label, value in rows}


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html)).strip()


@pytest.fixture
def locked(valkey: Any) -> Iterator[str]:
    """`name:password` of a user of the server."""
    valkey.execute_command("ACL", "SETUSER", "operator", "on", f">{SECRET}", "~*", "&*", "+@all")
    ConnectionFactory._pools.clear()  # it has one pool for each LOCATION, with the OPTIONS that came first
    yield f"operator:{SECRET}"
    ConnectionFactory._pools.clear()
    valkey.execute_command("ACL", "DELUSER", "operator")


def test_it_tells_of_the_server_and_the_versions(
    boss: Browser, jobs_site: Client, valkey: Any, valkey_url: str
) -> None:
    found = told(text_of(boss, path("about")))
    about = valkey.info("server")
    name = about.get("server_name", "redis")
    assert found["Server"] == f"{name.capitalize()} {about.get(f'{name}_version', about['redis_version'])}"
    assert found["Address"] == valkey_url
    assert found["Prefix of all keys"] == "ql:"
    assert found["Kept on a disk"].startswith(("yes", "no: "))
    assert found["resty_django"] == resty_django.__version__
    assert found["Core, by its SHA1"] == valkey.script_load(source("ql:"))
    assert "Cache that names the server" not in found


def test_it_tells_what_holds_for_jobs(boss: Browser, jobs_site: Client, settings: Any, valkey_url: str) -> None:
    worker = {"QUEUES": ["mail", "pdf"], "CONCURRENCY": 3, "GRACE": 90, "INTERRUPT": True}
    qless = {"URL": valkey_url, "PREFIX": "{jobs}ql:", "MODULES": ["shop.background"], "WORKER": worker}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": qless}
    client = Client(valkey_url, prefix="{jobs}ql:")
    client.config.set("heartbeat", 120)
    client.config.set("grace-period", 7)
    client.queues["pdf"].config_set("heartbeat", 900)
    client.config.set(f"{HOSTILE}-heartbeat", HOSTILE)
    text = text_of(boss, path("about"))
    found = told(text)
    assert found["Prefix of all keys"] == "{jobs}ql:"
    assert found["Lease of a job"].startswith("120 s; ")
    assert "; pdf: 900 s" in found["Lease of a job"]
    assert "\x00" not in text
    assert found["Grace after that"] == "7 s"
    assert "project.shop.tasks" in found["Modules of apps"].split(", ")
    assert "project.shop.jobs" not in found["Modules of apps"]
    assert found["MODULES"] == "shop.background"
    assert (found["EAGER"], found["RESULT_TTL"]) == ("no", "1 d")
    assert (found["WORKER QUEUES"], found["WORKER CONCURRENCY"]) == ("mail, pdf", "3")
    assert (found["WORKER GRACE"], found["WORKER INTERRUPT"]) == ("1 min 30 s", "yes")


def test_it_tells_what_the_reader_may_do(jobs_site: Client) -> None:
    labels = {
        "view_job": "Can see all these pages",
        "retry_job": "Can retry, move and time out jobs",
        "cancel_job": "Can cancel jobs",
        "edit_job": "Can change priority, tags, tracking, dependencies and arguments of jobs",
        "pause_queue": "Can pause and unpause queues",
        "configure_jobs": "Can change options, forget queues and deregister workers",
    }
    assert set(labels) == set(VERBS)
    for verb in VERBS[1:]:
        found = told(text_of(person("view_job", verb), path("about")))
        assert {codename for codename in VERBS if found[labels[codename]] == "yes"} == {"view_job", verb}
        assert {found[label] for label in labels.values()} == {"yes", "no"}


def test_it_needs_the_permission_to_look(jobs_site: Client) -> None:
    assert person(*VERBS[1:]).get(path("about")).status_code == 403
    assert Browser().get(path("about")).status_code == 302
    assert person("view_job").post(path("about")).status_code == 405


def test_each_word_of_the_pages_has_a_line(boss: Browser, jobs_site: Client) -> None:
    assert set(STATES) == {*shown.STATES, "recurring", "paused"}
    found = told(text_of(boss, path("about")))
    lines = {**{verb.label: verb.effect for verb in verbs.VERBS.values()}, **dict(DEEDS.values()), **STATES}
    for word, line in lines.items():
        assert line, word
        assert found[str(word)] == str(line)


def test_it_is_linked_and_links_to_the_other_pages(boss: Browser, jobs_site: Client) -> None:
    overview = text_of(boss, path("queue"))
    assert f'<a href="{path("about")}">About this job queue</a>' in overview
    assert f'<a href="{path("about")}">About</a>' in text_of(boss, path("worker"))
    text = text_of(boss, path("about"))
    assert f'<a href="{path("about")}" aria-current="page">About</a>' in text
    assert {*PAGES, "about"} == {model for model, _ in DOORS}
    listed = text.partition('id="content-main"')[2]
    for model in PAGES:
        assert f'href="{path(model)}"' in listed
    overview_of_all = 'href="/admin/resty_django/overview/"'
    assert overview_of_all in listed
    assert overview_of_all not in text_of(person("view_job"), path("about"))


@pytest.mark.parametrize("name", DOCS)
def test_pages_of_the_documentation_exist(name: str) -> None:
    file, _, place = name.partition("#")
    assert not place or place in page(file).anchors


@pytest.mark.parametrize("form", ["url", "query", "cache", "options"])
def test_no_password_is_shown(
    boss: Browser, settings: Any, valkey: Any, valkey_url: str, locked: str, form: str
) -> None:
    user, _, password = locked.partition(":")
    url = valkey_url.replace("://", f"://{locked}@")
    location, options = url, {}
    if form == "query":
        url = f"{valkey_url}?username={user}&password={password}"
    if form == "options":
        location, options = valkey_url, {"username": user, "password": password}
    section = {"URL": url} if form in ("url", "query") else {"ALIAS": "jobs"}
    plain_cache = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    settings.CACHES = {
        "default": plain_cache,
        "jobs": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": location,
            "OPTIONS": {"CONNECTION_POOL_KWARGS": options},
        },
    }
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    text = text_of(boss, path("about"))
    assert told(text)["Address"] == valkey_url
    assert told(text).get("Cache that names the server") == section.get("ALIAS")
    assert SECRET not in text
    assert "operator" not in told(text)["Address"]
    valkey.execute_command("ACL", "SETUSER", "operator", "resetpass", ">another")
    valkey.execute_command("CLIENT", "KILL", "USER", "operator")
    text = text_of(boss, path("about"), 503)
    assert "The jobs cannot be read now." in text
    assert SECRET not in text


def test_it_says_that_the_server_is_down_and_tells_the_rest(boss: Browser, settings: Any) -> None:
    url = f"redis://:{SECRET}@127.0.0.1:1/3"
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": url}}
    text = text_of(boss, path("about"), 503)
    found = told(text)
    assert "The jobs cannot be read now." in text
    assert found["Address"] == "redis://127.0.0.1:1/3"
    assert found["WORKER QUEUES"] == "default"
    assert found["Can cancel jobs"] == "yes"
    assert "Server" not in found
    assert "Lease of a job" not in found
    assert SECRET not in text


def test_a_cache_without_redis_is_told(boss: Browser, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"ALIAS": "default"}}
    text = text_of(boss, path("about"), 503)
    assert "has no Redis that resty_django can use" in text
    assert told(text)["Cache that names the server"] == "default"


def test_a_user_of_the_server_that_may_not_ask_for_its_kind_is_no_trouble(
    boss: Browser, settings: Any, valkey: Any, valkey_url: str, locked: str
) -> None:
    valkey.execute_command("ACL", "SETUSER", "operator", "-info")
    url = valkey_url.replace("://", f"://{locked}@")
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": url}}
    found = told(text_of(boss, path("about")))
    assert "may not do this" in found["Server"]
    assert found["Lease of a job"] == "60 s"
