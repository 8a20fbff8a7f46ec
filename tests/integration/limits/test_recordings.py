"""Recordings of the requests of policies: from requests, across processes, within their bounds, and their erasure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import ResolverMatch, path

from resty_django.limits import Decision, declare_policy
from resty_django.limits.policies import registry
from resty_django.limits.statistics import recorder as recorder_module
from resty_django.limits.statistics.events import DELAYED, PASSED, REFUSED, SHADOWED, is_sampled
from resty_django.limits.statistics.recorder import MOST_NAMES, RequestRecorder, recorder, tier_and_key
from resty_django.limits.statistics.reporter import LONGEST_KEY, Totals, stats
from resty_django.shdict import shdicts
from tests.integration.limits import served_urls
from tests.integration.limits.policy_tools import Worker, make_policy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

NOW = 1_790_000_000_000_000_000
PASS, REFUSE = Decision(True), Decision(False)


def tier_of(request: HttpRequest) -> str:
    return str(request.headers.get("X-Tier", ""))


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


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


def made(clock: Clock) -> RequestRecorder:
    return RequestRecorder(lambda: shdicts["limits"], clock)


def test_what_several_processes_record_is_read_in_order(store: str, clock: Clock) -> None:
    first, second = made(clock), made(clock)
    for decision, shadow in ((PASS, False), (Decision(True, delay=0.5), False), (REFUSE, False), (REFUSE, True)):
        first.record("p", "a", decision, shadow)
        clock.sleep(0.001)
        second.record("p", "b\udc80 é", decision, shadow)
        clock.sleep(400)
    assert second.flush()
    assert first.flush()
    recording = made(clock).read("p")
    times = [at - NOW // 1_000_000 for at, _, _ in recording.events]
    assert times == [0, 1, 400_001, 400_002, 800_002, 800_003, 1_200_003, 1_200_004]
    assert [key for _, key, _ in recording.events] == ["a", "b\udc80 é"] * 4
    assert [outcome for _, _, outcome in recording.events[::2]] == [PASSED, DELAYED, REFUSED, SHADOWED]
    assert recording.share == 1
    assert made(clock).read("q").events == []


def test_a_recording_covers_the_last_hour(store: str, clock: Clock) -> None:
    recording = made(clock)
    for minute in range(90):
        recording.record("p", str(minute), PASS)
        recording.flush()
        clock.sleep(60)
    keys = [int(key) for _, key, _ in recording.read("p").events]
    assert keys == list(range(30, 90))
    clock.sleep(7200)
    assert recording.read("p").events == []


def test_too_many_requests_are_sampled_by_key(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MOST", 500)
    recording = made(clock)
    for turn in range(30):
        for key in range(100):
            recording.record("p", f"key{key}", PASS)
            clock.sleep(0.001)
        if turn % 5 == 0:
            recording.flush()
    recording.flush()
    sample = recording.read("p")
    assert sample.level >= 3
    assert sample.share == 1 / 2**sample.level
    sampled = [f"key{key}" for key in range(100) if is_sampled(f"key{key}", sample.level)]
    assert sorted(key for _, key, _ in sample.events) == sorted(30 * sampled), "each sampled key is complete"


def test_a_new_log_starts_with_the_sampling_before_it_and_recovers(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST", 100)
    recording = made(clock)
    for key in range(1000):
        recording.record("p", f"key{key}", PASS)
    recording.flush()
    first = recording.read("p").level
    assert first >= 3
    for _ in range(first):
        clock.sleep(600)
        recording.record("p", "key", PASS)
        recording.flush()
    clock.sleep(3000)
    assert recording.read("p").level <= 1


def test_the_buffer_of_a_process_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(recorder_module, "MOST_BUFFERED", 640)
    recording = made(clock)
    working = settings.RESTY_DJANGO
    settings.RESTY_DJANGO = {**working, "SHARED_DICTS": {"limits": {"PATH": "/proc/nowhere"}}}
    for turn in range(10):
        for key in range(400):
            recording.record("p", f"key{key}", PASS)
        if turn == 5:
            assert not recording.flush()
    assert sum(len(buffer.events) for buffer in recording.buffers.values()) <= 2 * 640
    settings.RESTY_DJANGO = working
    assert recording.flush()
    sample = recording.read("p")
    assert 2 <= sample.level <= 5
    sampled = {f"key{key}" for key in range(400) if is_sampled(f"key{key}", sample.level)}
    assert sampled
    assert sorted(key for _, key, _ in sample.events) == sorted([*sampled] * 10), "a sampled key is complete"
    for name in ("p", "q"):
        recording.record(name, "k", PASS)
        assert recording.flush()
    assert recording.read("q").share == 1


def test_the_number_of_recordings_and_their_bytes_are_bounded(clock: Clock) -> None:
    recording = made(clock)
    for number in range(MOST_NAMES + 5):
        recording.record(f"p{number}", "k", PASS)
        recording.flush()
    assert recording.read(f"p{MOST_NAMES - 1}").events
    assert recording.read(f"p{MOST_NAMES}").events == []
    clock.sleep(2 * 7200)
    recording.record(f"p{MOST_NAMES}", "k", PASS)
    recording.flush()
    assert recording.read(f"p{MOST_NAMES}").events, "the others have expired"


def test_the_bytes_of_a_recording_are_bounded(limits_site: dict[str, Any], settings: Any, clock: Clock) -> None:
    small = {"PATH": limits_site["SHARED_DICTS"]["limits"]["PATH"], "SIZE": 1024 * 1024}
    settings.RESTY_DJANGO = {**limits_site, "SHARED_DICTS": {**limits_site["SHARED_DICTS"], "limits": small}}
    recording = made(clock)
    for turn in range(30):
        for number in range(500):
            recording.record("p", f"2001:db8:{turn:x}:{number:x}::/64|{number * 7919:x}", PASS)
        recording.flush()
        clock.sleep(110)
    stored = [shdicts["limits"].get(key) for key in shdicts["limits"].iter_keys("*recording*:p")]
    assert 0 < sum(map(len, stored)) <= 1024 * 1024 / 8
    assert recording.read("p").level > 0


def test_the_middleware_records_the_requests_of_policies(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = path("<str:name>/", lambda request, name: HttpResponse(b"done"))
    monkeypatch.setattr(served_urls, "urlpatterns", [view])
    settings.MIDDLEWARE = ["resty_django.limits.middleware.LimitMiddleware"]
    settings.ROOT_URLCONF = "tests.integration.limits.served_urls"
    make_policy(limit=2, path="/pay/", key="ip+path")
    make_policy("shadow", limit=1, path="/pay/", key="ip", mode="shadow")
    for address in ("/pay/", "/pay/", "/pay/", "/other/"):
        client.get(address)
    recorder.flush()
    recorded = [(key, outcome) for _, key, outcome in recorder.read("pay:ip+path").events]
    assert recorded == [("127.0.0.1|/pay/", outcome) for outcome in (PASSED, PASSED, REFUSED)]
    recorded = [(key, outcome) for _, key, outcome in recorder.read("shadow:ip").events]
    assert recorded == [("127.0.0.1", outcome) for outcome in (PASSED, SHADOWED, SHADOWED)]


def test_requests_of_tiers_are_recorded_with_their_tier(
    client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = path("<str:name>/", lambda request, name: HttpResponse(b"done"))
    monkeypatch.setattr(served_urls, "urlpatterns", [view])
    settings.MIDDLEWARE = ["resty_django.limits.middleware.LimitMiddleware"]
    settings.ROOT_URLCONF = "tests.integration.limits.served_urls"
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"TIER": f"{__name__}.tier_of"}}
    make_policy(limit=1, path="/pay/", key="ip", tiers="pro: 100/h;2/h\nstaff: none")
    for tier in ("pro", "pro", "pro", "staff", "other", ""):
        client.get("/pay/", headers={"X-Tier": tier})
    recorder.flush()
    recorded = [(tier_and_key(key), outcome) for _, key, outcome in recorder.read("pay:ip").events]
    pro, own = ("pro", "127.0.0.1"), ("", "127.0.0.1")
    assert recorded == [(pro, PASSED), (pro, PASSED), (pro, REFUSED), (own, PASSED), (own, REFUSED)]


def test_requests_that_pass_are_recorded_within_the_same_bounds(
    monkeypatch: pytest.MonkeyPatch, rf: RequestFactory
) -> None:
    monkeypatch.setattr(recorder_module, "MOST_BUFFERED", 640)
    monkeypatch.setattr(recorder, "_task", None)
    declare_policy("pay", "fixed_window", limit=10**6, window="1h")
    policy = registry.get_policy("pay")
    assert policy is not None
    request = rf.get("/pay/7/")
    request.resolver_match = ResolverMatch(HttpResponse, (), {}, route="pay/<int:pk>/")
    for number in range(5000):
        policy.record(f"k{number}", PASS, request)
        recorder.record("other", f"k{number}", PASS, False, request)
    buffer, other = recorder.buffers[policy.recording], recorder.buffers["other"]
    assert buffer.level > 1
    assert [event[1:] for event in buffer.events] == [event[1:] for event in other.events]
    policy.record("k" * 500, PASS, request)
    policy.record("k", Decision(True, delay=0.5), request)
    policy.record("k", Decision(True, failed=True), request)
    assert recorder.flush()
    assert stats.flush()
    recorded = recorder.read(policy.recording)
    assert {event.target for event in recorded.requests} == {"GET pay/<int:pk>/"}
    assert all(is_sampled(event.key, recorded.level) for event in recorded.requests)
    assert max(len(event.key) for event in recorded.requests) <= LONGEST_KEY
    assert stats.totals()["pay"] == Totals(passed=5002, delayed=1, failed=1)
    policy.record("last", PASS, request)
    assert [event[1] for event in buffer.events] == ["last"]


def test_a_setting_switches_the_recording_off(settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"RECORD_REQUESTS": False}}
    declare_policy("pay", "fixed_window", limit=1, window="1h")
    policy = registry.get_policy("pay")
    assert policy is not None
    policy.record("k", PASS)
    assert recorder.flush()
    assert recorder.read(policy.recording).events == []


def test_the_recording_can_be_switched_off_while_it_runs(settings: Any, rf: RequestFactory) -> None:
    declare_policy("pay", "fixed_window", limit=100, window="1h")
    policy = registry.get_policy("pay")
    assert policy is not None
    request = rf.get("/")
    request.resolver_match = ResolverMatch(HttpResponse, (), {}, route="")
    for _ in range(2):
        policy.record("k", PASS, request)
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"RECORD_REQUESTS": False}}
    policy.record("k", PASS, request)
    assert recorder.flush()
    assert len(recorder.read(policy.recording).events) == 2
    assert stats.flush()
    assert stats.totals()["pay"] == Totals(3)


def test_a_process_records_at_its_exit(worker: Callable[..., Worker]) -> None:
    make_policy(limit=2, key="ip")
    process = worker("decide", name="pay", keys=["192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.1"])
    process.wait_for(lambda line: line[0] == "decided")
    assert process.end() == ""
    now = time.time() * 1000
    events = recorder.read("pay:ip").events
    assert [(key, outcome) for _, key, outcome in events] == [
        ("192.0.2.1", PASSED),
        ("192.0.2.2", PASSED),
        ("192.0.2.1", PASSED),
        ("192.0.2.1", REFUSED),
    ]
    assert all(now - 600_000 < at <= now for at, _, _ in events)


def test_a_forked_child_records_only_its_own_requests(worker: Callable[..., Worker]) -> None:
    make_policy(limit=2, key="ip")
    process = worker("decide_and_fork", name="pay")
    process.wait_for(lambda line: line == ["child", True])
    assert process.end() == ""
    assert sorted(key for _, key, _ in recorder.read("pay:ip").events) == ["child", "parent"]


def test_foreign_data_is_not_read(clock: Clock) -> None:
    recording = made(clock)
    recording.record("p", "k", PASS)
    recording.flush()
    for key in shdicts["limits"].get_keys(0):
        shdicts["limits"].set(key, "foreign")
    assert recording.read("p").events == []
    recording.record("p", "k", PASS)
    assert recording.flush()
    assert len(recording.read("p").events) == 1


def test_the_folder_of_the_store_may_be_missing(settings: Any, tmp_path: Path) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {"limits": {"PATH": "/proc/nowhere"}}}
    recorder.record("p", "k", PASS)
    assert not recorder.flush()
