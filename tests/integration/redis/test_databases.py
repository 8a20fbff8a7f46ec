"""Databases of Redis that `cache.clear()` empties: the check names those with jobs or dictionaries."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache

from resty_django.checks import check_caches
from resty_django.qless import client
from resty_django.redis.clients import connection
from resty_django.shdict import shdicts

DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGO = "django.core.cache.backends.redis.RedisCache"
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
TIMEOUTS = {"SOCKET_TIMEOUT": 1, "socket_timeout": 1}


def entry(location: Any, backend: str = DJANGO_REDIS, **options: Any) -> dict[str, Any]:
    return {"BACKEND": backend, "LOCATION": location, "OPTIONS": {**TIMEOUTS, **options}}


CLUSTER = entry(["redis://h:1", "redis://h:2"], CLIENT_CLASS="resty_django.redis.cluster.ClusterClient")
CHECKED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "the default alias": ({"default": entry("redis://h/0")}, {}, ["default"]),
    "Django's backend": ({"default": entry("redis://h", DJANGO)}, {}, ["default"]),
    "no Redis": ({"default": LOCMEM}, {"URL": "redis://h"}, []),
    "an alias that nothing else uses": (
        {"default": entry("redis://h/0"), "resty": entry("redis://h/1")},
        {"ALIAS": "resty"},
        [],
    ),
    "another server": ({"default": entry("redis://h"), "resty": entry("redis://i")}, {"ALIAS": "resty"}, []),
    "another port": ({"default": entry("redis://h"), "resty": entry("redis://h:6380")}, {"ALIAS": "resty"}, []),
    "two aliases, one database": (
        {"default": LOCMEM, "pages": entry("redis://h:6379/1"), "resty": entry("rediss://u:p@h/1")},
        {"ALIAS": "resty"},
        ["pages"],
    ),
    "a URL of the same database": (
        {"default": entry("redis://localhost")},
        {"URL": "redis://127.0.0.1:6379/0"},
        ["default"],
    ),
    "a URL of another database": ({"default": entry("redis://localhost")}, {"URL": "redis://127.0.0.1:6379/1"}, []),
    "a socket": ({"default": entry("unix:///r.sock?db=2")}, {"URL": "unix:///r.sock?db=2"}, ["default"]),
    "another database of a socket": ({"default": entry("unix:///r.sock")}, {"URL": "unix:///r.sock?db=2"}, []),
    "a number in OPTIONS": ({"default": entry("redis://h", DJANGO, db=3)}, {"URL": "redis://h/3"}, ["default"]),
    "one of several servers": ({"default": entry("redis://g,redis://h", DJANGO)}, {"URL": "redis://h"}, ["default"]),
    "a cluster, whose clear() deletes only its keys": ({"default": CLUSTER}, {"PREFIX": "{q}ql:"}, []),
    "a wrong LOCATION": ({"default": entry("nonsense")}, {}, []),
}


@pytest.mark.parametrize(("caches", "section", "named"), CHECKED.values(), ids=CHECKED)
def test_the_check_names_databases_that_clear_would_empty(
    settings: Any, caches: Any, section: Any, named: list[str]
) -> None:
    settings.CACHES = caches
    settings.RESTY_DJANGO = {"QLESS": section}
    messages = check_caches()
    assert [message.id for message in messages] == ["resty_django.W006"] * len(named)
    assert all(f"the cache {alias!r}" in message.msg for alias, message in zip(named, messages, strict=True))
    settings.RESTY_DJANGO = {"QLESS": {**section, "EAGER": True}}
    assert check_caches() == []
    if "URL" not in section and named:
        dicts = {"far": {"ENGINE": "redis", "ALIAS": section.get("ALIAS", "default")}}
        settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": dicts}
        assert [message.msg.split(" uses")[0] for message in check_caches()] == ['RESTY_DJANGO["SHARED_DICTS"]["far"]']


def test_clear_leaves_jobs_and_dictionaries_of_another_database(settings: Any, valkey_url: str) -> None:
    base = valkey_url.rpartition("/")[0]
    settings.CACHES = {"default": entry(f"{base}/3"), "resty": entry(f"{base}/4")}
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {"far": {"ENGINE": "redis", "ALIAS": "resty"}},
        "QLESS": {"ALIAS": "resty"},
    }
    assert check_caches() == []
    cache.set("page", 1)
    shdicts["far"].set("k", 1)
    jid = client.queues["q"].put("shop.jobs.Send")
    cache.clear()
    assert (cache.get("page"), shdicts["far"].get("k"), client.jobs[jid].state) == (None, 1, "waiting")
    connection("resty").flushdb()
