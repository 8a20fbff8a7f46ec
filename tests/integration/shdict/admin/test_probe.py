"""Findings of `manage.py resty_check` about the shared dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from resty_django import health
from resty_django.health import Finding
from resty_django.shdict import shdicts


def findings() -> dict[str, Finding]:
    return {finding.subject.removeprefix("dictionary "): finding for _, finding in health.run(["dictionaries"])}


def overfill(name: str) -> int:
    """Store items until some are evicted, and return the number of evictions."""
    number = 0
    while not shdicts[name].set(f"key{number}", "x" * 1500).forcible:
        number += 1
    return shdicts[name].stats().forcible or 0


def test_dictionaries_that_work_are_ok(site: Callable[..., None]) -> None:
    site()
    shdicts["default"].set("k", "v")
    by_subject = findings()
    assert set(by_subject) == set(shdicts)
    assert {finding.level for finding in by_subject.values()} == {"ok"}
    assert "; 1 keys, 1.5 MB of 1.5 MB free." in by_subject["default"].message


def test_a_dictionary_that_cannot_be_used_is_an_error(site: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    site(away={"PATH": tmp_path / "file"}, nocache={"ENGINE": "redis", "ALIAS": "default"})
    by_subject = findings()
    assert by_subject["default"].level == "ok"
    assert by_subject["away"].level == "error"
    assert "Unavailable" in by_subject["away"].message
    assert "PATH" in by_subject["away"].message
    assert by_subject["nocache"].level == "error"
    assert "ImproperlyConfigured" in by_subject["nocache"].message


def test_a_full_cache_is_usual_and_a_full_default_is_not(site: Callable[..., None]) -> None:
    site(pages={"SIZE": 2**20})
    gone = overfill("pages")
    by_subject = findings()
    assert by_subject["pages"].level == by_subject["default"].level == "ok"
    assert f"{gone} items were evicted before they expired" in by_subject["pages"].message
    overfill("default")
    warning = findings()["default"]
    assert warning.level == "warning"
    assert "Raise SIZE" in warning.message


@pytest.mark.redis
def test_a_dictionary_whose_redis_is_down_is_an_error(site: Callable[..., None], valkey_url: str) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    gone = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    site(
        caches={"store": cache, "gone": gone},
        shared={"ENGINE": "redis", "ALIAS": "store"},
        down={"ENGINE": "redis", "ALIAS": "gone"},
    )
    by_subject = findings()
    assert by_subject["shared"].level == "ok"
    assert "free." in by_subject["shared"].message
    assert by_subject["down"].level == "error"
