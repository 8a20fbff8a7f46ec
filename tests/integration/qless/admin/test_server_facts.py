"""Facts about the job queue's server on the page of options: they contain no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client as Browser

import resty_django
from resty_django.qless import Client
from resty_django.qless.core import source
from tests import servers
from tests.integration.qless.admin.tools import path, plain, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

SECRET = "s3cr3t-of-the-server"


def facts_of(text: str) -> dict[str, str]:
    """Return the values in the tables of the page, as plain text by label."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', text, re.DOTALL)
    return {plain(label): plain(value) for label, value in rows}


@pytest.fixture
def locked(valkey: Any) -> Iterator[str]:
    """`name:password` of a Redis user."""
    valkey.execute_command("ACL", "SETUSER", "operator", "on", f">{SECRET}", "~*", "&*", "+@all")
    servers.forget_pools()
    yield f"operator:{SECRET}"
    servers.forget_pools()
    valkey.execute_command("ACL", "DELUSER", "operator")


def test_server_and_versions_are_shown(admin_client: Browser, jobs_site: Client, valkey: Any, valkey_url: str) -> None:
    facts = facts_of(text_of(admin_client, path("option")))
    server_info = valkey.info("server")
    name = server_info.get("server_name", "redis")
    assert facts["Server"] == f"{name.capitalize()} {server_info.get(f'{name}_version', server_info['redis_version'])}"
    assert facts["Address"] == valkey_url
    assert facts["Key prefix"] == "ql:"
    assert facts["Persistence"].startswith(("yes", "no: "))
    assert facts["resty_django"] == resty_django.__version__
    assert facts["Core (SHA1)"] == valkey.script_load(source("ql:"))
    assert "Cache that defines the server" not in facts


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
    text = text_of(admin_client, path("option"))
    assert facts_of(text)["Address"] == valkey_url
    assert facts_of(text).get("Cache that defines the server") == section.get("ALIAS")
    assert SECRET not in text
    valkey.execute_command("ACL", "SETUSER", "operator", "resetpass", ">another")
    valkey.execute_command("CLIENT", "KILL", "USER", "operator")
    text = text_of(admin_client, path("option"), 503)
    assert "Jobs are not available" in text
    assert SECRET not in text


def test_redis_user_without_info_permission_gets_the_other_facts(
    admin_client: Browser, settings: Any, valkey: Any, valkey_url: str, locked: str
) -> None:
    valkey.execute_command("ACL", "SETUSER", "operator", "-info")
    url = valkey_url.replace("://", f"://{locked}@")
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": url}}
    facts = facts_of(text_of(admin_client, path("option")))
    assert "lacks the permission" in facts["Server"]
    assert "Core (SHA1)" in facts


@pytest.mark.parametrize("configured", [True, False])
def test_error_page_promises_only_what_a_configured_server_does(
    admin_client: Browser, settings: Any, configured: bool
) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    section = {"URL": "redis://127.0.0.1:1/0"} if configured else {}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    text = text_of(admin_client, path("queue"), 503)
    assert [sentence in text for sentence in ("The server keeps waiting jobs", "No jobs are lost")] == [
        configured,
        not configured,
    ]
