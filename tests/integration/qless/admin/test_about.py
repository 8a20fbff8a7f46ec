"""About page of the job queue: facts for a new operator, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client as Browser

import resty_django
from resty_django.qless import Client
from resty_django.qless.admin import formatting, operations
from resty_django.qless.admin.about import DOCS, PAGES
from resty_django.qless.admin.base import NAV_ITEMS
from resty_django.qless.admin.glossary import OPERATION_HELP, STATE_HELP
from resty_django.qless.core import source
from tests import servers
from tests.docs_reader import page
from tests.integration.qless.admin.tools import HOSTILE, PERMISSIONS, path, person, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

SECRET = "s3cr3t-of-the-server"


def facts_of(text: str) -> dict[str, str]:
    """Return the values in the tables of the page, as plain text by label."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', text, re.DOTALL)
    return {plain(label): plain(value) for label, value in rows}


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html)).strip()


@pytest.fixture
def locked(valkey: Any) -> Iterator[str]:
    """`name:password` of a Redis user."""
    valkey.execute_command("ACL", "SETUSER", "operator", "on", f">{SECRET}", "~*", "&*", "+@all")
    servers.forget_pools()
    yield f"operator:{SECRET}"
    servers.forget_pools()
    valkey.execute_command("ACL", "DELUSER", "operator")


def test_server_and_versions_are_shown(admin_client: Browser, jobs_site: Client, valkey: Any, valkey_url: str) -> None:
    facts = facts_of(text_of(admin_client, path("about")))
    server_info = valkey.info("server")
    name = server_info.get("server_name", "redis")
    assert facts["Server"] == f"{name.capitalize()} {server_info.get(f'{name}_version', server_info['redis_version'])}"
    assert facts["Address"] == valkey_url
    assert facts["Key prefix"] == "ql:"
    assert facts["Persistence"].startswith(("yes", "no: "))
    assert facts["resty_django"] == resty_django.__version__
    assert facts["Core (SHA1)"] == valkey.script_load(source("ql:"))
    assert "Cache that defines the server" not in facts


def test_leases_and_settings_are_shown(
    admin_client: Browser, jobs_site: Client, settings: Any, valkey_url: str
) -> None:
    worker = {"QUEUES": ["mail", "pdf"], "CONCURRENCY": 3, "GRACE": 90, "INTERRUPT": True}
    qless = {"URL": valkey_url, "PREFIX": "{jobs}ql:", "MODULES": ["shop.background"], "WORKER": worker}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": qless}
    client = Client(valkey_url, prefix="{jobs}ql:")
    client.config.set("heartbeat", 120)
    client.config.set("grace-period", 7)
    client.queues["pdf"].config_set("heartbeat", 900)
    client.config.set(f"{HOSTILE}-heartbeat", HOSTILE)
    text = text_of(admin_client, path("about"))
    facts = facts_of(text)
    assert facts["Key prefix"] == "{jobs}ql:"
    assert facts["Job lease"].startswith("2 min; ")
    assert "; pdf: 15 min" in facts["Job lease"]
    assert "\x00" not in text
    assert facts["Grace period"] == "7 s"
    assert "project.shop.tasks" in facts["Modules of apps"].split(", ")
    assert "project.shop.jobs" not in facts["Modules of apps"]
    assert facts["MODULES"] == "shop.background"
    assert (facts["EAGER"], facts["RESULT_TTL"]) == ("no", "1 d")
    assert (facts["WORKER QUEUES"], facts["WORKER CONCURRENCY"]) == ("mail, pdf", "3")
    assert (facts["WORKER GRACE"], facts["WORKER INTERRUPT"]) == ("1 min 30 s", "yes")


def test_permissions_of_the_user_are_shown(jobs_site: Client) -> None:
    labels = {
        "view_job": "Can view all of these pages",
        "retry_job": "Can retry, move and time out jobs, and run scheduled and recurring jobs now",
        "cancel_job": "Can cancel jobs",
        "edit_job": "Can change priority, tags, tracking and dependencies of jobs, and recurring jobs",
        "start_job": "Can start jobs with arguments of their choice: new and repeated jobs, recurring jobs",
        "pause_queue": "Can pause and unpause queues",
        "configure_jobs": "Can change options, forget queues and deregister workers",
        "control_worker": "Can quiet, resume, stop and scale workers, and request the stacks of their jobs",
    }
    assert set(labels) == set(PERMISSIONS)
    for codename in PERMISSIONS[1:]:
        facts = facts_of(text_of(person("view_job", codename), path("about")))
        assert {name for name in PERMISSIONS if facts[labels[name]] == "yes"} == {"view_job", codename}
        assert {facts[label] for label in labels.values()} == {"yes", "no"}


def test_page_needs_the_view_permission_and_get(jobs_site: Client) -> None:
    assert person(*PERMISSIONS[1:]).get(path("about")).status_code == 403
    assert Browser().get(path("about")).status_code == 302
    assert person("view_job").post(path("about")).status_code == 405


def test_every_state_and_operation_is_explained(admin_client: Browser, jobs_site: Client) -> None:
    assert set(STATE_HELP) == {*formatting.STATES, "canceled", "recurring", "paused", "skipped"}
    facts = facts_of(text_of(admin_client, path("about")))
    lines = {
        **{operation.label: operation.effect for operation in operations.OPERATIONS.values()},
        **dict(OPERATION_HELP.values()),
        **STATE_HELP,
    }
    for label, help_text in lines.items():
        assert help_text, label
        assert facts[str(label)] == str(help_text)


def test_page_is_linked_and_links_to_the_other_pages(admin_client: Browser, jobs_site: Client) -> None:
    overview = text_of(admin_client, path("queue"))
    assert f'<a href="{path("about")}">About this job queue</a>' in overview
    assert f'<a href="{path("about")}">About</a>' in text_of(admin_client, path("worker"))
    text = text_of(admin_client, path("about"))
    assert f'<a href="{path("about")}" aria-current="page">About</a>' in text
    assert {*PAGES, "about"} == {model for model, _ in NAV_ITEMS}
    content = text.partition('id="content-main"')[2]
    for model in set(PAGES) - {"archivedjob"}:  # the site has no archive
        assert f'href="{path(model)}"' in content
    overview_of_all = 'href="/admin/resty_django/overview/"'
    assert overview_of_all in content
    assert overview_of_all not in text_of(person("view_job"), path("about"))


@pytest.mark.parametrize("name", DOCS)
def test_pages_of_the_documentation_exist(name: str) -> None:
    file, _, anchor = name.partition("#")
    assert not anchor or anchor in page(file).anchors


@pytest.mark.parametrize("form", ["url", "query", "cache", "options"])
def test_no_password_is_shown(
    admin_client: Browser, settings: Any, valkey: Any, valkey_url: str, locked: str, form: str
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
    text = text_of(admin_client, path("about"))
    assert facts_of(text)["Address"] == valkey_url
    assert facts_of(text).get("Cache that defines the server") == section.get("ALIAS")
    assert SECRET not in text
    assert "operator" not in facts_of(text)["Address"]
    valkey.execute_command("ACL", "SETUSER", "operator", "resetpass", ">another")
    valkey.execute_command("CLIENT", "KILL", "USER", "operator")
    text = text_of(admin_client, path("about"), 503)
    assert "The job queue is not available." in text
    assert SECRET not in text


def test_settings_are_shown_while_the_server_is_down(admin_client: Browser, settings: Any) -> None:
    url = f"redis://:{SECRET}@127.0.0.1:1/3"
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": url}}
    text = text_of(admin_client, path("about"), 503)
    facts = facts_of(text)
    assert "The job queue is not available." in text
    assert facts["Address"] == "redis://127.0.0.1:1/3"
    assert facts["WORKER QUEUES"] == "default"
    assert facts["Can cancel jobs"] == "yes"
    assert "Server" not in facts
    assert "Job lease" not in facts
    assert SECRET not in text


def test_cache_without_redis_is_an_error_message(admin_client: Browser, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"ALIAS": "default"}}
    text = text_of(admin_client, path("about"), 503)
    assert "does not provide a Redis client for resty_django" in text
    assert facts_of(text)["Cache that defines the server"] == "default"


def test_redis_user_without_info_permission_gets_the_other_facts(
    admin_client: Browser, settings: Any, valkey: Any, valkey_url: str, locked: str
) -> None:
    valkey.execute_command("ACL", "SETUSER", "operator", "-info")
    url = valkey_url.replace("://", f"://{locked}@")
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": url}}
    facts = facts_of(text_of(admin_client, path("about")))
    assert "lacks the permission" in facts["Server"]
    assert facts["Job lease"] == "1 min"
