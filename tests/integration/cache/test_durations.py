"""Durations as numbers, timedeltas and texts, wherever a cache takes a time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django.cache import BadOption, Fresh, MLCache, cache_view, cached, mlcaches
from resty_django.cache.checks import check_backends
from resty_django.conf import all_problems, conf
from tests.integration.cache.backends import install
from tests.integration.cache.conftest import Make, value

VALID: list[tuple[Any, float]] = [
    (600, 600),
    (1.5, 1.5),
    ("10m", 600),
    ("1h30m", 5400),
    ("500ms", 0.5),
    (" 2 days ", 172_800),
    (timedelta(minutes=10), 600),
    (timedelta(0), 0),
]
NONSENSE: list[Any] = ["soon", "10", "10 x", "-5m", "", timedelta(seconds=-1), -1, True, [10], float("nan"), "1" * 100]
FORMS = 'a number of seconds, a timedelta or a text such as "90s", "10m" or "1h30m", of at least 0'


async def test_times_of_calls(make: Make) -> None:
    a = make("A")
    for duration, seconds in VALID:
        await a.do("set", "k", 1, ttl=duration)
        await a.do("delete", "l")
        await a.lookup("l", value(1), ttl=duration)
        await a.do("delete", "fresh")
        await a.lookup("fresh", value(Fresh(1, duration)))
        await a.do("set_many", {"m": 1}, ttl=duration)
        for key in ("k", "l", "fresh", "m"):
            assert (await a.do("peek", key)).ttl == pytest.approx(seconds)


@pytest.mark.parametrize("name", ["ttl", "neg_ttl", "stale_while_revalidate", "resurrect_ttl"])
def test_nonsense_is_named(site: Any, name: str) -> None:
    cache = mlcaches["default"]
    for duration in NONSENSE:
        with pytest.raises(BadOption) as raised:
            cache.set("k", 1, **{name: duration})
        assert str(raised.value).startswith(f"{name} must be ")
        assert FORMS in str(raised.value)
        assert repr(duration) in str(raised.value)
        with pytest.raises(BadOption, match=name):
            cached(name="x", **{name: duration})(len)
        with pytest.raises(BadOption, match=name):
            MLCache("c", "default", **{name: duration})


async def test_decorators(site: Any) -> None:
    @cached(name="durations", ttl="10m", neg_ttl=timedelta(seconds=3))
    def load(number: int) -> int | None:
        return number or None

    load(1)
    load(0)
    assert 599 < load.peek(1).ttl <= 600  # type: ignore[union-attr]
    assert 2 < load.peek(0).ttl <= 3  # type: ignore[union-attr]

    @cache_view("2m", stale_while_revalidate="1h")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("x")

    assert view(RequestFactory().get("/durations/"))["Cache-Control"] == "max-age=120"
    with pytest.raises(BadOption, match="ttl"):
        cache_view("soon")


def test_settings(site: Any) -> None:
    keys = {"TTL": "10m", "NEG_TTL": timedelta(seconds=2), "RESURRECT_TTL": "1h", "LOCK": {"EXPTIME": "2m"}}
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"default": keys}}
    options = mlcaches["default"].options
    assert (options.ttl, options.neg_ttl, options.resurrect_ttl) == (600, 2, 3600)
    assert options.lock_options["exptime"] == 120
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"default": {"TTL": "10 minuets"}}}
    (problem,) = all_problems()
    assert problem.message == (
        'RESTY_DJANGO["CACHES"]["default"]["TTL"] is not valid. \'10 minuets\': \'minuets\' is not a unit of time. '
        "Use ms, s, m, h, d or w."
    )
    conf.clear()


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("10m", 600), ("300", 300), (timedelta(hours=1), 3600), (5, 5)], ids=str
)
def test_timeout_of_the_backend(settings: Any, tmp_path: Path, timeout: Any, seconds: float) -> None:
    install(settings, "lmdb", tmp_path, "", LRU_TTL="2s")
    settings.CACHES = {"default": {**settings.CACHES["default"], "TIMEOUT": timeout}}
    cache: Any = caches["default"]
    assert cache.default_timeout == seconds
    cache.set("k", 1)
    assert cache.ttl("k") == seconds
    cache.set("k", 1, "90s")
    assert cache.ttl("k") == 90
    assert cache.expire("k", timedelta(minutes=2))
    assert cache.ttl("k") == 120
    assert cache.get_or_set("f", lambda: 1, "1h") == 1
    assert cache.ttl("f") == 3600
    assert cache.incr("n", ttl="10m") == 1
    assert cache.ttl("n") == 600
    cache.set("k", 1, timedelta(seconds=-1))
    assert cache.get("k") is None
    assert cache.store.options.lru_ttl == 2
    with pytest.raises(ValueError, match="'soon'"):
        cache.set("k", 1, "soon")


@pytest.mark.parametrize("timeout", ["soon", "1O", [5], float("nan")])
def test_a_timeout_that_is_none(settings: Any, tmp_path: Path, timeout: Any) -> None:
    install(settings, "lmdb", tmp_path, "")
    settings.CACHES = {"default": {**settings.CACHES["default"], "TIMEOUT": timeout}}
    forms = FORMS.removesuffix(" of at least 0")
    sentence = f"TIMEOUT must be None, or {forms} not {timeout!r}."
    assert sentence in [message for error in check_backends() for message in [error.msg.partition(": ")[2]]]
    with pytest.raises(ImproperlyConfigured, match="TIMEOUT"):
        caches["default"].get("k")
