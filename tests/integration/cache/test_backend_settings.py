"""Settings of a cache in `CACHES`, and the messages for wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured

from resty_django.cache.checks import check_backends
from resty_django.conf import conf
from resty_django.shdict import shdicts
from tests.integration.cache.backends import OURS, fresh


@pytest.fixture(autouse=True)
def site(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[None]:
    yield from fresh(request, settings, tmp_path, "lmdb")


def wrong(settings: Any, **changed: Any) -> list[checks.CheckMessage]:
    """Return the messages of the checks for a cache with these changes."""
    settings.CACHES = {"default": {"BACKEND": OURS, "LOCATION": "pages", **changed}}
    return check_backends()


def test_a_valid_cache_has_no_messages() -> None:
    assert check_backends() == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"LOCATION": "nowhere"}, "LOCATION is 'nowhere', but must be the name of a shared dictionary"),
        ({"LOCATION": ""}, "LOCATION is ''"),
        ({"OPTIONS": {"LRU_SIZE": -1}}, "LRU_SIZE must be an integer of at least 0, not -1"),
        ({"OPTIONS": {"LRU_SIZE": True}}, "LRU_SIZE must be"),
        ({"OPTIONS": {"LRU_TTL": "1"}}, "LRU_TTL must be a number of seconds, a timedelta or a text such as"),
        (
            {"OPTIONS": {"MAX_ENTRIES": 5}},
            "MAX_ENTRIES is not an option of this cache. Options: LRU_SIZE, LRU_TTL, ON_ERROR,",
        ),
        ({"OPTIONS": {"ON_ERROR": "source"}}, "ON_ERROR must be 'miss' or 'raise', not 'source'."),
        ({"OPTIONS": {"IPC_SHM": "events"}}, "IPC_SHM is not an option of this cache"),
    ],
)
def test_wrong_settings_are_reported(settings: Any, changed: dict[str, Any], fault: str) -> None:
    (message,) = wrong(settings, **changed)
    assert message.id == "resty_cache.E001"
    assert fault in message.msg
    with pytest.raises(ImproperlyConfigured, match="A cache in CACHES with BACKEND") as caught:
        caches["default"].get("k")
    assert fault in str(caught.value)


def test_a_dictionary_that_stands_on_its_own_cache(settings: Any) -> None:
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"pages": {"ENGINE": "redis", "ALIAS": "default"}}}
    (message,) = wrong(settings)
    assert "names the cache 'default', which uses this BACKEND itself" in message.msg


def test_two_caches_on_one_dictionary(settings: Any) -> None:
    config = {"BACKEND": OURS, "LOCATION": "pages"}
    settings.CACHES = {"default": config, "other": {**config, "OPTIONS": {"LRU_SIZE": 5}}}
    assert [message.id for message in check_backends()] == ["resty_cache.E002"]
    caches["default"].get("k")
    with pytest.raises(ImproperlyConfigured, match="different OPTIONS"):
        caches["other"].get("k")


def test_a_dictionary_that_others_use(settings: Any) -> None:
    for location in ("default", "events"):
        assert [message.id for message in wrong(settings, LOCATION=location)] == ["resty_cache.W001"]


def test_sessions_that_an_outage_would_end(settings: Any) -> None:
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    assert [message.id for message in wrong(settings)] == ["resty_cache.W002"]
    assert wrong(settings, OPTIONS={"ON_ERROR": "raise"}) == []
    settings.SESSION_CACHE_ALIAS = "elsewhere"
    assert wrong(settings) == []


def test_wrong_settings_of_the_package_are_reported_elsewhere(settings: Any) -> None:
    settings.RESTY_DJANGO = {"NOTHING": 1}
    assert wrong(settings, LOCATION="nowhere") == []


def test_the_checks_are_run(settings: Any) -> None:
    wrong(settings, LOCATION="nowhere")
    assert "resty_cache.E001" in [message.id for message in checks.run_checks()]


def test_settings_that_change(settings: Any, tmp_path: Path) -> None:
    """An object of the cache that is kept uses the dictionary of the new settings."""
    cache = caches["default"]
    cache.set("k", "x")
    assert cache.get("k") == "x"
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {name: {"PATH": str(tmp_path / "others")} for name in ("pages", "events", "default")}
    }
    assert cache.get("k") is None
    cache.set("k", "y")
    assert shdicts["pages"].get(":1:k")[-1:] == b"y"
    assert conf.shared_dicts["pages"].path == str(tmp_path / "others")
