"""`/healthz/live` and `/healthz/ready`."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient
from django.test import Client as Browser
from django.urls import include, path
from redis import Redis

from resty_django.healthz import views
from tests.servers import forget_pools, free_port, one
from tests.tcpproxy import Proxy

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

LIVE, READY = "/healthz/live", "/healthz/ready"
urlpatterns = [
    path("healthz/", include("resty_django.healthz.urls")),
    path("database/ready", views.ready, {"parts": ["databases"]}),
]


@pytest.fixture(autouse=True)
def _urls(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["resty_django.healthz.middleware.healthz_middleware", *settings.MIDDLEWARE]
    yield
    views._readiness.cache_clear()
    forget_pools()


def redis_site(settings: Any, url: str, **dictionaries: dict[str, Any]) -> None:
    """A cache and the jobs on this server; what an earlier site answered is forgotten."""
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
    settings.RESTY_DJANGO = {"QLESS": {"URL": url}, "SHARED_DICTS": {"default": {}, **dictionaries}}
    views._readiness.cache_clear()
    forget_pools()


def answer(url: str = READY) -> tuple[int, bytes]:
    response = Browser().get(url)
    return response.status_code, response.content


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@pytest.fixture
def server_url() -> Iterator[str]:
    with one() as server:
        yield server.url


@pytest.mark.parametrize("url", [LIVE, READY])
def test_a_healthy_site(settings: Any, server_url: str, url: str) -> None:
    redis_site(settings, server_url)
    response = Browser().get(url)
    assert (response.status_code, response.content) == (200, b"ok\n")
    assert response["Content-Type"] == "text/plain"
    assert "no-store" in response["Cache-Control"]
    assert not response.cookies
    head = Browser().head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert Browser().post(url).status_code == 405


@pytest.mark.parametrize("backend", ["django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"])
def test_probes_leave_no_connections(settings: Any, server_url: str, backend: str) -> None:
    redis_site(settings, server_url)
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": server_url}}
    gc.disable()
    try:
        for _ in range(5):
            views._readiness.cache_clear()
            assert answer() == (200, b"ok\n")
        with Redis.from_url(server_url) as client:
            assert client.info("clients")["connected_clients"] <= 2  # this one, and the one that django-redis keeps
    finally:
        gc.enable()


def test_liveness_touches_no_store(settings: Any, django_assert_num_queries: Any) -> None:
    redis_site(settings, f"redis://127.0.0.1:{free_port()}")
    with django_assert_num_queries(0):
        assert answer(LIVE) == (200, b"ok\n")
    assert answer()[0] == 503


def test_both_need_no_log_in(settings: Any, server_url: str) -> None:
    redis_site(settings, server_url)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert [answer(url)[0] for url in (LIVE, READY)] == [200, 200]


def test_a_server_that_is_gone(settings: Any) -> None:
    with one() as server:
        redis_site(settings, server.url)
        assert answer() == (200, b"ok\n")
        server.kill()
        time.sleep(1.1)
        response = Browser().get(READY)
        assert (response.status_code, response.content) == (503, b"not ready\n")
        assert response.headers.keys() == {"Content-Type", "Expires", "Cache-Control"}
        assert answer("/database/ready") == (200, b"ok\n")
        server.start()
        time.sleep(1.1)
        assert answer() == (200, b"ok\n")


def test_jobs_on_a_server_that_is_gone(settings: Any, server_url: str) -> None:
    redis_site(settings, server_url)
    settings.RESTY_DJANGO = {"QLESS": {"URL": f"redis://127.0.0.1:{free_port()}/0"}}
    assert answer()[0] == 503


def test_a_dictionary_that_cannot_be_used(settings: Any, server_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    redis_site(settings, server_url, away={"PATH": tmp_path / "file"})
    assert answer()[0] == 503
    assert answer("/database/ready")[0] == 200


def test_a_database_that_is_gone(settings: Any, server_url: str, tmp_path: Path, monkeypatch: Any) -> None:
    redis_site(settings, server_url)
    missing = {**connections["default"].settings_dict, "ENGINE": "django.db.backends.sqlite3"}
    missing |= {"NAME": tmp_path / "missing" / "db", "OPTIONS": {}, "TEST": {"MIRROR": None}}
    monkeypatch.setitem(connections.settings, "second", missing)
    assert answer()[0] == 503
    assert answer("/database/ready")[0] == 503


@pytest.mark.parametrize("middleware", [True, False])
def test_no_other_middleware_runs_before_the_answer(settings: Any, server_url: str, middleware: bool) -> None:
    """Redirects count as success, and a limit or a Host that is not allowed would end the process."""
    redis_site(settings, server_url)
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["shop.example.org"]
    if not middleware:
        settings.MIDDLEWARE = settings.MIDDLEWARE[1:]
    for url in (LIVE, READY):
        assert Browser().get(url, headers={"Host": "10.0.0.7:8000"}).status_code == (200 if middleware else 400)
        headers = {"Host": "shop.example.org"}
        assert Browser().get(url, headers=headers).status_code == (200 if middleware else 301)
        assert Browser().get(url, headers=headers, secure=True).status_code == 200
    assert Browser().get("/shop/live", secure=True, headers=headers).status_code == 404


async def test_the_middleware_in_async_code(settings: Any, server_url: str) -> None:
    await sync_to_async(redis_site)(settings, server_url)
    settings.MIDDLEWARE = settings.MIDDLEWARE[:1]
    for url in (LIVE, READY):
        assert (await AsyncClient().get(url)).status_code == 200
    assert (await AsyncClient().get("/other")).status_code == 404


@pytest.mark.db
def test_a_database_that_says_nothing(settings: Any, server_url: str, silent_database: Proxy) -> None:
    redis_site(settings, server_url)
    silent_database.silence(new=True)
    began = time.monotonic()
    assert answer()[0] == 503
    assert time.monotonic() - began < 3


def test_a_store_that_says_nothing(settings: Any, silent_port: int) -> None:
    redis_site(settings, f"redis://127.0.0.1:{silent_port}")
    began = time.monotonic()
    assert answer()[0] == 503
    assert 0.9 < time.monotonic() - began < 3


def test_a_store_that_hangs_holds_one_request_for_a_second(settings: Any) -> None:
    def timed(number: int) -> float:
        began = time.monotonic()
        answer()
        return time.monotonic() - began

    with one() as server:
        redis_site(settings, server.url)
        assert answer()[0] == 200
        time.sleep(1.1)
        server.process.send_signal(signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(8) as pool:
                durations = sorted(pool.map(timed, range(8)))
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert durations[-2] < 0.9 < durations[-1] < 3


def test_a_flood_costs_one_check_a_second(settings: Any) -> None:
    with one() as server:
        redis_site(settings, server.url)
        assert answer()[0] == 200
        before = pings(server)
        browser, began = Browser(), time.monotonic()
        for _ in range(300):
            assert browser.get(READY).status_code == 200
        seconds = time.monotonic() - began
        assert pings(server) - before <= 2 * (seconds + 1)  # of the cache and of the jobs


def pings(server: Any) -> int:
    with server.client() as client:
        return int(client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])


def test_the_log_says_once_what_does_not_respond(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    with one() as server:
        redis_site(settings, server.url)
        caplog.set_level(logging.INFO)
        assert answer()[0] == 200
        server.kill()
        for _ in range(2):
            time.sleep(1.1)
            assert [answer()[0], answer()[0]] == [503, 503]
        server.start()
        time.sleep(1.1)
        assert answer()[0] == 200
    records = [record for record in caplog.records if record.name in ("resty_django.healthz", "django.request")]
    assert [record.levelname for record in records] == ["ERROR", "WARNING"]
    failed, again = (record.getMessage() for record in records)
    assert failed.startswith("not ready: readiness of cache default: ")
    assert "readiness of jobs: " in failed
    assert "databases" not in failed
    assert again == "ready again"
