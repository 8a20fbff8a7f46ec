"""`manage.py resty_forget`: one key is erased everywhere, others stay, and what stays is named."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from django.core.management import CommandError, call_command

from resty_django import erasing
from resty_django.cache import MLCache
from resty_django.cache.mlcache import cache as cache_module
from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from resty_django.limits.enforcement.keys import plain
from resty_django.limits.erasing import has
from resty_django.limits.statistics.reporter import KEYS_LIFE, LIFE, stats
from resty_django.minute_series.records import HOURS
from resty_django.sansio import run
from resty_django.shdict import Unavailable, shdicts
from tests.docs_reader import page
from tests.integration.cache.tools import callback_took
from tests.integration.limits.policy_tools import limits_site

__all__ = ["limits_site"]

pytestmark = pytest.mark.django_db

LONG = "a user whose name is long " * 4


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def site(
    request: pytest.FixtureRequest,
    limits_site: dict[str, Any],
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    monkeypatch.setattr(cache_module, "_live", WeakSet())  # no cache of an earlier test that still lives
    if request.param == "redis":
        request.getfixturevalue("valkey")
        url = request.getfixturevalue("valkey_url")
        settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
        entry = {"ENGINE": "redis", "ALIAS": "default"}
        settings.RESTY_DJANGO = {
            **limits_site,
            "SHARED_DICTS": dict.fromkeys(("default", "bans", "events", "limits"), entry),
        }
    return str(request.param)


def limiters() -> list[Any]:
    return [
        FixedWindow(1, 60, prefix="policy:a:fixed_window:"),
        SlidingWindow(1, 60, prefix="view:shop.views.pay:req:ab12:"),
        LeakyBucket(1, burst=1, prefix="named:api:req:"),
        TokenBucket.from_interval(1000, 1, prefix="throttle:anon:ip:"),
        Concurrency(1, prefix="policy:b:concurrency:"),
    ]


def forget(*args: str) -> str:
    output = io.StringIO()
    call_command("resty_forget", *args, stdout=output)
    return output.getvalue()


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("42", "42"),
        (LONG, plain(LONG)),
    ],
)
def test_a_key_is_erased_everywhere_and_others_stay(site: str, key: str, stored: str) -> None:
    others = ["203.0.113.70", "1203.0.113.7", "2001:db8:1:3::/64", "142", "420"]
    for limiter in limiters():
        for name in (stored, f"{stored}|/path", f"/path|{stored}", *others):
            limiter.hit(name)
            decision = limiter.hit(name)
            stats.record("a", name, decision)
    stats.flush()
    before = len(shdicts["limits"].get_keys(0))
    listed = {entry.key for entry in stats.top("a")}
    assert stored in listed
    dry = forget(key, "--dry-run")
    assert "limits: 15 states of limits would be erased" in dry
    assert len(shdicts["limits"].get_keys(0)) == before
    assert stored in {entry.key for entry in stats.top("a")}
    output = forget(key)
    assert "limits: 15 states of limits erased" in output
    for limiter in limiters():
        assert limiter.peek(stored).allowed, "it begins anew"
        assert not any(stored in name.split("|") for name in shdicts["limits"].get_keys(0))
    assert {entry.key for entry in stats.top("a")} == listed - {stored, f"{stored}|/path", f"/path|{stored}"}
    assert len(shdicts["limits"].get_keys(0)) == before - 15
    assert "limits: 0 states of limits erased" in forget(key)
    assert key not in output


def test_the_slowest_keys_of_caches_too(site: str) -> None:
    cache = MLCache("people", "default")
    for key in ("user:42:page", "user:420:page", "203.0.113.7", "203.0.113.70"):
        cache.counter.now.l3 += 1
        callback_took(cache.counter, key, 1.0)
    run(cache.counter.flush())
    output = forget("42", "203.0.113.7")
    assert "cache: 2 entries in the lists of the slowest keys and of invalidated tags erased" in output
    history = run(cache.counter.history())
    for entries in (history.slow, history.missed):
        assert {entry.key for entry in entries} == {"user:420:page", "203.0.113.70"}


def test_another_dictionary_is_looked_through_where_it_is_named(site: str) -> None:
    FixedWindow(1, 60, store="default", prefix="p:").hit("203.0.113.7")
    assert "limits: 0 states" in forget("203.0.113.7")
    assert "limits: 1 states" in forget("203.0.113.7", "--dictionary", "default")
    with pytest.raises(CommandError, match="--dictionary 'nope' is not in SHARED_DICTS"):
        forget("x", "--dictionary", "nope")


def test_it_names_what_it_does_not_erase(site: str) -> None:
    output = forget("203.0.113.7")
    for phrase in ("Log files", "shipped", "database", "Jobs", "caches", "local", "Expired"):
        assert phrase in output.partition("Not erased:")[2], phrase


def test_a_store_that_is_down_is_an_error_and_the_others_are_done(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*given: object) -> Any:
        raise Unavailable("the store is down")

    parts = dict(erasing.registry)
    monkeypatch.setattr(erasing, "registry", {"broken": erasing.Part("broken", down), **parts})
    with pytest.raises(CommandError, match="broken: the store is down") as caught:
        forget("203.0.113.7")
    assert caught.value.returncode == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("policy:a:fixed_window:203.0.113.7", True),
        ("policy:a:fixed_window:203.0.113.7|/x", True),
        ("policy:a:fixed_window:/x|203.0.113.7", True),
        ("203.0.113.7", True),
        ("policy:a:fixed_window:1.203.0.113.7", False),
        ("policy:a:fixed_window:203.0.113.7/x", False),
    ],
)
def test_only_whole_parts_of_a_key_count(name: str, expected: bool) -> None:
    assert has(name, frozenset({"203.0.113.7"})) is expected


def test_the_page_tells_the_retention_that_is_built_in() -> None:
    rows = {row[0]: row[2] for row in page("docs/privacy.md").table("data", "location", "retention")}
    page_text = " ".join(rows.values())
    assert KEYS_LIFE == 2 * 3600
    assert LIFE == 7 * 86_400
    assert HOURS == 48
    for phrase in ("2 hours", "7 days after the last decision", "2 days after the slow call"):
        assert phrase in page_text
