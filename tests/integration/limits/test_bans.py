"""Bans of keys: by limits, and by operators."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from resty_django.limits import bans, request_refused
from resty_django.limits.bans import registry
from resty_django.limits.bans.registry import dictionary
from resty_django.limits.decorators import limit_count, limit_req, limit_window
from resty_django.limits.limiters.rate import FixedWindow
from resty_django.limits.specs.ban import BanRule, ban_rule
from resty_django.limits.testing import FrozenClock, frozen_limits
from resty_django.limits.throttling import FixedWindowThrottle
from resty_django.shdict import NoMemory, shdicts
from tests import processes

from .test_processes import ENVIRON
from .view_tools import Site, drf_view, heard, on_dead_redis, sync_requests

HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture
def clock() -> Iterator[FrozenClock]:
    with frozen_limits() as clock:
        yield clock


def test_each_further_ban_is_twice_as_long_up_to_the_maximum() -> None:
    rule = BanRule(ban=900, within=900)
    assert [rule.length(number) for number in (1, 2, 3, 4)] == [900, 1800, 3600, 7200]
    assert rule.length(8) == rule.length(10**9) == DAY


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ban_after": 3}, r'ban_after= needs ban=, such as ban="15m"'),
        ({"ban": "15m", "ban_after": 0}, "ban_after"),
        ({"ban": "15m", "ban_after": True}, "ban_after"),
        ({"ban": "15m", "max_ban": "1m"}, "max_ban must not be shorter than ban"),
        ({"ban": 0}, "ban must be longer than 0, not 0"),
        ({"ban": "soon"}, "'soon' is not a duration"),
        ({"ban": "15m", "block": False}, "block=False refuses nothing, so it cannot ban"),
        ({"bann": "15m"}, "Did you mean 'ban'"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        limit_req("1/s", **options)


def test_the_options_of_a_rule() -> None:
    assert ban_rule({}, "A limit") is None
    rule = ban_rule({"ban": "2d", "ban_after": 3, "ban_within": "1m", "ban_memory": "1h"}, "A limit")
    assert rule == BanRule(ban=2 * DAY, after=3, within=60, longest=2 * DAY, memory=HOUR)


async def test_a_key_is_banned_after_refusals(site: Site, clock: FrozenClock) -> None:
    view = site.view(limit_window(2, per="1m", ban="15m", ban_after=3))
    assert await site.statuses(view, 4) == [200, 200, 429, 429]
    response = await site.get(view)
    assert (response.status_code, response["Retry-After"]) == (429, "900")
    clock.tick(899)
    response = await site.get(view)
    assert (response.status_code, response["Retry-After"]) == (429, "1")
    assert await site.statuses(view, 1, ip="192.0.2.2") == [200]
    clock.tick(1)
    assert await site.statuses(view, 1) == [200]


async def test_bans_grow_and_are_forgotten(site: Site, clock: FrozenClock) -> None:
    view = site.view(limit_count(1, per="1s", ban="10m", max_ban="30m", ban_memory="1h"))

    async def ban() -> str:
        assert await site.statuses(view, 1) == [200]
        retry_after = (await site.get(view))["Retry-After"]
        clock.tick(int(retry_after))
        return str(retry_after)

    assert [await ban() for _ in range(4)] == ["600", "1200", "1800", "1800"]
    clock.tick(HOUR - 1)
    assert await ban() == "1800"
    clock.tick(HOUR)
    assert await ban() == "600"


async def test_refusals_count_within_their_time(site: Site, clock: FrozenClock) -> None:
    view = site.view(limit_count(1, per="1d", ban="15m", ban_after=2, ban_within="1m"))
    assert await site.statuses(view, 2) == [200, 429]
    clock.tick(60)
    assert int((await site.get(view))["Retry-After"]) > 900
    assert bans.current_bans() == []
    await site.get(view)
    (ban,) = bans.current_bans()
    assert (ban.key, ban.number, ban.until - ban.since) == ("192.0.2.1", 1, 900)
    assert ban.reason.startswith("over 1 request")


async def test_failures_ban_with_count_when(site: Site, clock: FrozenClock) -> None:
    def body(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=int(request.GET.get("status", 200)))

    limit = limit_window(2, per="1m", count_when=lambda response: response.status_code == 403, ban="1h")
    view = site.view(limit, body=body)
    assert await site.statuses(view, 3) == [200] * 3
    assert await site.statuses(view, 2, path="/?status=403") == [403, 403]
    assert (await site.get(view))["Retry-After"] == "3600"


async def test_shadow_limits_do_not_ban(site: Site, clock: FrozenClock) -> None:
    view = site.view(limit_count(1, per="1h", ban="1h", dry_run=True))
    assert await site.statuses(view, 3) == [200] * 3
    assert bans.current_bans() == []


async def test_several_rates_and_tiers_share_the_bans_of_their_view(site: Site, clock: FrozenClock) -> None:
    view = site.view(limit_count(rate="1/m;5/d", ban="1h"))
    assert await site.statuses(view, 2) == [200, 429]
    assert len(bans.current_bans()) == 1
    assert (await site.get(view))["Retry-After"] == "3600"


async def test_a_ban_is_announced_as_a_refusal(
    site: Site, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    with heard(request_refused) as signals, caplog.at_level(logging.WARNING, "resty_django.limits"):
        view = site.view(limit_count(1, per="1m", ban="1h", name="search"))
        await site.statuses(view, 3)
    received = [(sent["sender"], sent["name"], sent["key"], sent["decision"].retry_after) for sent in signals]
    assert received == [(FixedWindow, "search", "192.0.2.1", HOUR)] * 2
    assert "banned 192.0.2.1 by search for 3600 s (ban number 1): over 1 request" in caplog.text


@pytest.mark.usefixtures("bans_store")
async def test_code_adds_and_lifts_bans(site: Site) -> None:
    view = site.view(limit_count(100, per="1h", ban="1h", name="added"))
    bans.add("192.0.2.1", for_="1h", reason="scans")
    assert 3599 <= int((await site.get(view))["Retry-After"]) <= 3600
    assert bans.lift("192.0.2.1") == 1
    assert bans.lift("192.0.2.1") == 0
    assert await site.statuses(view, 1) == [200]
    await bans.aadd("192.0.2.1", for_=60, limit="added")
    await bans.aadd("192.0.2.1", for_="2h", limit="other")
    assert [(ban.limit, ban.number) for ban in bans.current_bans()] == [("other", 1), ("added", 1)]
    ban = await bans.afind("192.0.2.1", "added")
    assert ban is not None
    assert bans.find("192.0.2.1", "added") == ban
    assert bans.find("192.0.2.1") is None
    assert bans.lift("192.0.2.1", "added") == 1
    assert bans.lift("192.0.2.1") == 1


@pytest.mark.parametrize(
    ("key", "options", "error"),
    [
        ("", {"for_": 1}, "key of a ban must be a string that is not empty"),
        (None, {"for_": 1}, "key of a ban"),
        ("k" * 1001, {"for_": 1}, "at most 1000 characters, not 1001"),
        ("k", {"for_": 0}, "for_ of a ban must be longer than 0"),
        ("k", {"for_": "1h", "reason": "r" * 201}, "at most 200 characters, not 201"),
    ],
)
def test_wrong_bans(key: Any, options: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        bans.add(key, **options)


@pytest.mark.usefixtures("bans_store")
def test_hostile_keys_are_kept_apart() -> None:
    for limit, key in (("a", "b:c"), ("a:b", "c"), ("", "*"), ("", "🔑\x00\n")):
        bans.add(key, for_="1h", limit=limit)
    assert {(ban.limit, ban.key) for ban in bans.current_bans()} == {
        ("a", "b:c"),
        ("a:b", "c"),
        ("", "*"),
        ("", "🔑\x00\n"),
    }
    assert bans.lift("*") == 1
    assert bans.find("b:c", "a") is not None
    assert bans.find("c", "a") is None


@pytest.mark.usefixtures("bans_store")
def test_bans_and_foreign_data_share_a_dictionary() -> None:
    dictionary().set("ban:5:hello", 7)
    dictionary().rpush("ban:list", 7)
    assert bans.current_bans() == []


@pytest.mark.usefixtures("bans_store")
def test_bans_are_found_by_limits_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BANS_PER_READ", 2)
    bans.add("192.0.2.1", for_="1h")
    bans.add("192.0.2.1", for_="2h", limit="search")
    bans.add("192.0.2.2", for_="2h", limit="search")
    bans.add("192.0.2.3", for_=0.02, limit="search")
    while bans.find("192.0.2.3", "search") is not None:
        time.sleep(0.01)
    dictionary().rpush(registry.name_of("pay", "192.0.2.1"), 7)
    dictionary().set(registry.name_of("slow", "192.0.2.1"), 7)
    names = [(limit, f"192.0.2.{number}") for limit in ("", "search", "pay", "slow") for number in (1, 3, 4)]
    assert [(ban.limit, ban.key) for ban in registry.in_force(names)] == [("", "192.0.2.1"), ("search", "192.0.2.1")]
    assert registry.in_force([]) == []


def test_frozen_bans_are_found_by_limits_and_keys(clock: FrozenClock) -> None:
    bans.add("192.0.2.1", for_="1min")
    names = [("", "192.0.2.1"), ("search", "192.0.2.1")]
    assert [ban.limit for ban in registry.in_force(names)] == [""]
    clock.tick(60)
    assert registry.in_force(names) == []


def test_rate_states_evict_no_ban_and_a_full_dictionary_is_reported(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    size = {"SIZE": 1024 * 1024, "PATH": str(tmp_path)}
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": {"bans": size, "limits": size}}):
        bans.add("first", for_="1h")
        counter = FixedWindow(1, 3600)
        for number in range(20_000):
            counter.hit(f"spoofed {number}")
        assert shdicts["limits"].stats().forcible
        assert bans.find("first") is not None

        def fill() -> None:
            for number in range(20_000):
                bans.add(f"spoofed {number}", for_="1h")

        with caplog.at_level(logging.ERROR), pytest.raises(NoMemory, match="'bans' is full"):
            fill()
        stored = len(bans.current_bans()) - 1
        assert stored > 1000
        assert "spoofed" in caplog.text
        assert bans.count_not_stored() == 1
        assert bans.find("first") is not None
        assert bans.lift("spoofed 0", "") == 1


async def test_a_store_that_is_down(site: Site) -> None:
    with on_dead_redis("bans"):
        for on_error, expected in (("open", [200, 429]), ("closed", [429, 429]), ("local", [200, 429])):
            view = site.view(limit_count(1, per="1h", ban="1h", on_error=on_error))
            assert await site.statuses(view, 2) == expected


class Throttle(FixedWindowThrottle):
    rate, ban, ban_after = "1/m", "1h", 2


def test_a_throttle_bans(clock: FrozenClock) -> None:
    view = drf_view(Throttle)
    replies = [view(sync_requests.get("/")) for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 429, 429, 429]
    assert [reply.headers.get("Retry-After") for reply in replies] == [None, "60", "3600", "3600"]


WORKER = """
import django, sys, json
from django.conf import settings
settings.SECRET_KEY = sys.argv[1]
django.setup()
from resty_django.limits.bans.banning import Banning
from resty_django.limits.specs.ban import BanRule
from resty_django.sansio import run
banning = Banning(BanRule(ban=3600, after=50, within=3600), "crowd", prefix="crowd:")
caused = [run(banning.counting("k", "test")) for _ in range(100)]
print(json.dumps(sum(ban is not None for ban in caused)))
"""


def test_several_processes_ban_once(empty_limits: None) -> None:
    dictionary().flush_all()
    from django.conf import settings

    command = [sys.executable, "-c", WORKER, settings.SECRET_KEY]
    workers = [processes.Process(command, env=ENVIRON, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    counts = [json.loads(worker.communicate(timeout=100)[0]) for worker in workers]
    assert sum(counts) == 1
    (ban,) = bans.current_bans()
    assert (ban.limit, ban.key, ban.number) == ("crowd", "k", 1)
    dictionary().flush_all()
