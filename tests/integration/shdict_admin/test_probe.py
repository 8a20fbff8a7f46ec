"""What `manage.py resty_check` says of the shared dictionaries."""

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
    """Store until items have to go; how many went."""
    number = 0
    while not shdicts[name].set(f"key{number}", "x" * 1500).forcible:
        number += 1
    return shdicts[name].stats().forcible or 0


def test_dictionaries_in_order(site: Callable[..., None]) -> None:
    site()
    shdicts["default"].set("k", "v")
    found = findings()
    assert set(found) == set(shdicts.names())
    assert {one.level for one in found.values()} == {"ok"}
    assert "; 1 keys, 1.5 MB of 2.0 MB free." in found["default"].message


def test_a_dictionary_that_cannot_be_used_is_an_error(site: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    site(away={"PATH": tmp_path / "file"}, nocache={"ENGINE": "redis", "ALIAS": "default"})
    found = findings()
    assert found["default"].level == "ok"
    assert found["away"].level == "error"
    assert "Unavailable" in found["away"].message
    assert "PATH" in found["away"].message
    assert found["nocache"].level == "error"
    assert "ImproperlyConfigured" in found["nocache"].message


def test_a_full_cache_is_usual_and_a_full_default_is_not(site: Callable[..., None]) -> None:
    site(pages={"SIZE": 2**20})
    gone = overfill("pages")
    found = findings()
    assert found["pages"].level == found["default"].level == "ok"
    assert f"{gone} items were thrown out before their time" in found["pages"].message
    overfill("default")
    warning = findings()["default"]
    assert warning.level == "warning"
    assert "raise its SIZE" in warning.message


@pytest.mark.redis
def test_dictionaries_in_redis(site: Callable[..., None], valkey_url: str) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    gone = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    site(
        caches={"store": cache, "gone": gone},
        shared={"ENGINE": "redis", "ALIAS": "store"},
        down={"ENGINE": "redis", "ALIAS": "gone"},
    )
    found = findings()
    assert found["shared"].level == "ok"
    assert "free." in found["shared"].message
    assert found["down"].level == "error"
