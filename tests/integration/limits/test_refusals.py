"""Recent refusals of all limits: stored with their times, within their bounds, and shown for a key."""

from __future__ import annotations

import contextlib
import html
import re
import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory

from resty_django.limits import Decision, Limited, limit_count, limited
from resty_django.limits.policies import registry
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.events import EventOutcome, RefusalEvent
from resty_django.limits.statistics.refusals import MAX_REFUSALS, MAX_REFUSALS_OF_KEY
from resty_django.limits.statistics.reporter import StatsReporter, stats
from resty_django.limits.throttling import FixedWindowThrottle
from resty_django.shdict import shdicts
from resty_django.txid import bound
from resty_django.txid import txid as new_txid
from tests.integration.limits.policy_tools import POLICIES, make_policy
from tests.integration.limits.view_tools import drf_view

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

KEY = f"{POLICIES}limits/key/"
REFUSE = Decision(False)
START = 1_790_000_000.0


@pytest.fixture(autouse=True)
def empty_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that other tests have declared are not asked."""
    monkeypatch.setattr(catalog, "_limits", {})


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def store(request: pytest.FixtureRequest, limits_site: dict[str, Any], settings: Any) -> str:
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


class Clock:
    now = START

    def __call__(self) -> float:
        return self.now


def rows(client: Client, key: str) -> list[list[str]]:
    """The refusals that the page of a key lists, as the texts of their cells."""
    page = client.get(KEY, {"key": key})
    assert page.status_code == 200
    _, _, part = page.content.decode().partition("resty-refusals")
    return [
        [" ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).split()) for cell in re.findall(r"<td.*?</td>", row)]
        for row in re.findall(r"<tr><td>.*?</tr>", part, re.DOTALL)
    ]


def test_refusals_of_several_processes_are_read_in_order(store: str) -> None:
    clock = Clock()
    first, second = (StatsReporter(lambda: shdicts["limits"], clock) for _ in range(2))
    for turn in range(3):
        clock.now = START + 60 * turn
        first.record("p", "a", REFUSE)
        first.record("p", "passed", Decision(True))
        clock.now += 1
        second.record("p", "b", REFUSE, shadow=True)
    assert second.flush()
    assert first.flush()
    milliseconds = int(START * 1000)
    expected = [
        event
        for turn in range(3)
        for event in (
            RefusalEvent(milliseconds + 60_000 * turn, "a", EventOutcome.REFUSED),
            RefusalEvent(milliseconds + 60_000 * turn + 1000, "b", EventOutcome.SHADOWED),
        )
    ]
    assert first.refusals("p") == expected
    assert first.refusals("q") == []
    clock.now = START + 2 * 86_400 + 100
    assert first.refusals("p") == expected[-2:]


def test_refusals_are_bounded_per_key_and_per_limit() -> None:
    clock = Clock()
    reporter = StatsReporter(lambda: shdicts["limits"], clock)
    for turn in range(100):
        clock.now = START + turn
        for number in range(30):
            reporter.record("p", f"key{turn}-{number}", REFUSE)
        reporter.record("p", "often", REFUSE)
        if turn % 3 == 0:
            assert reporter.flush()
    reporter.flush()
    events = reporter.refusals("p")
    assert len(events) <= MAX_REFUSALS
    often = [event.time for event in events if event.key == "often"]
    assert often == [int((START + turn) * 1000) for turn in range(100 - len(often), 100)]
    assert 20 <= len(often) <= MAX_REFUSALS_OF_KEY
    assert events[-1][0] == int((START + 99) * 1000)
    for _ in range(5000):
        reporter.record("p", "often", REFUSE)
    reporter.flush()
    assert len([event for event in reporter.refusals("p") if event[1] == "often"]) == MAX_REFUSALS_OF_KEY
    assert len({event.key for event in reporter.refusals("p")}) > 100, "a key does not push out the others"


def test_refusals_wait_while_the_store_is_down(settings: Any) -> None:
    clock = Clock()
    reporter = StatsReporter(lambda: shdicts["limits"], clock)
    working = settings.RESTY_DJANGO
    settings.RESTY_DJANGO = {**working, "SHARED_DICTS": {"limits": {"PATH": "/proc/nowhere"}}}
    for turn in range(3):
        for number in range(MAX_REFUSALS):
            reporter.record("p", f"{turn}-{number}", REFUSE)
        assert not reporter.flush()
    assert len(reporter.tallies["p"].recent) == MAX_REFUSALS
    settings.RESTY_DJANGO = working
    assert reporter.flush()
    keys = [event.key for event in reporter.refusals("p")]
    assert keys
    assert all(key.startswith("2-") for key in keys)


def test_the_page_of_a_key_lists_its_refusals_in_all_limits(admin_client: Client, settings: Any) -> None:
    make_policy(limit=1, key="ip+path")
    make_policy("shadow", limit=1, key="ip", mode="shadow")
    before = int(time.time())
    for name, key in (("pay", "192.0.2.1|/pay"), ("shadow", "192.0.2.1"), ("pay", "192.0.2.10|/pay")):
        policy = registry.get_policy(name)
        assert policy is not None
        for _ in range(2):
            policy.record(key, policy.limiter.hit(key))

    @limited("1/h", key=lambda: "ip:192.0.2.1", name="sms")
    def send() -> None: ...

    for _ in range(2):
        with contextlib.suppress(Limited):
            send()
    listed = rows(admin_client, "192.0.2.1")
    assert sorted(row[1:] for row in listed) == [
        ["pay", "Policy", "192.0.2.1|/pay", "", "refused"],
        ["shadow", "Policy", "192.0.2.1", "", "would have been refused"],
        ["sms", "Function", "ip:192.0.2.1", "", "refused"],
    ]
    times = {row[0].split()[-1] for row in listed}
    zone = ZoneInfo(settings.TIME_ZONE)
    possible = {
        datetime.fromtimestamp(second, tz=zone).strftime("%H:%M:%S") for second in range(before, int(time.time()) + 1)
    }
    assert times <= possible
    assert [row[1] for row in rows(admin_client, "192.0.2.10")] == ["pay"]
    assert rows(admin_client, "192.0.2.2") == []
    assert "No refusal of it is stored." in admin_client.get(KEY, {"key": "192.0.2.2"}).content.decode()


def test_the_refusal_of_a_request_is_found_by_its_txid(admin_client: Client) -> None:
    """Limits of requests record the method, the path and the txid of the request; functions only the txid."""

    class Prices(FixedWindowThrottle):
        rate, key, scope = "1/h", "ip", "prices"

    @limited("1/h", key=lambda: "k", name="sms")
    def send() -> None: ...

    throttled, decorated = (
        drf_view(Prices),
        limit_count(1, per="1h", name="search", key="ip")(lambda request: HttpResponse()),
    )
    request = RequestFactory().post("/api/prices/", REMOTE_ADDR="192.0.2.1")
    throttled(request)
    decorated(request)
    send()
    with bound() as txid:
        assert throttled(request).status_code == decorated(request).status_code == 429
        with contextlib.suppress(Limited):
            send()
    shown = f"POST /api/prices/{txid}"
    assert sorted(row[1:] for row in rows(admin_client, txid)) == [
        ["prices:count", "Throttle", "192.0.2.1", shown, "refused"],
        ["search:count", "Decorator", "192.0.2.1", shown, "refused"],
        ["sms", "Function", "k", txid, "refused"],
    ]
    page = admin_client.get(KEY, {"key": txid}).content.decode()
    assert 'href="?key=192.0.2.1"' in page
    other = admin_client.get(KEY, {"key": new_txid()}).content.decode()
    assert "No refusal of it is stored." in other
    for text in ("No limit has a state", "This key is not banned", "Add override", "No quota has counted"):
        assert text not in other, text


def test_a_key_lists_at_most_a_hundred_refusals_and_says_so(admin_client: Client) -> None:
    for name in ("a", "b", "c"):
        for _ in range(MAX_REFUSALS_OF_KEY):
            stats.record(name, "k", REFUSE)
    assert len(rows(admin_client, "k")) == 100
    assert "100 of 150 stored refusals." in admin_client.get(KEY, {"key": "k"}).content.decode()


def test_long_keys_are_shortened() -> None:
    long = "y" * 100_000
    stats.record("long", long, REFUSE)
    assert "yyyyy" not in str(stats.flush() and stats.refusals("long"))
