"""Findings of `resty_check` about caches."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from resty_django import health
from resty_django.cache import LRU, CallbackFailed, EventChannel, MLCache, mlcaches
from resty_django.cache.statistics.reporter import CacheCounter
from resty_django.sansio import run
from resty_django.shdict import shdicts
from tests.integration.cache.conftest import raises, value
from tests.integration.cache.tools import callback_took

OURS = "resty_django.cache.backend.MLCacheBackend"
pytestmark = pytest.mark.usefixtures("site")


def findings() -> dict[str, tuple[str, str]]:
    """Level and message by subject."""
    return {finding.subject: (finding.level, finding.message) for _, finding in health.run(["cache"])}


def test_all_is_well() -> None:
    mlcaches["default"].get("k", value(1))
    [(subject, (level, message))] = findings().items()
    assert (level, subject) == ("ok", "cache")
    assert "can be used. No callback failed in the last 10 minutes." in message
    output = StringIO()
    call_command("resty_check", only=["cache"], stdout=output)
    assert "can be used" in output.getvalue()


def test_callbacks_that_failed_in_any_process_are_reported() -> None:
    counter = CacheCounter("elsewhere", shdicts["default"])
    callback_took(counter, "k", 0.1)
    callback_took(counter, "k", 0.1)
    counter.now.callback_errors = 1
    run(counter.flush())
    with pytest.raises(CallbackFailed):
        mlcaches["default"].get("k", raises(ValueError("boom")))
    reported = findings()
    assert reported["cache default"] == ("warning", "In the last 10 minutes 1 of 1 callbacks failed.")
    assert reported["cache elsewhere"] == ("warning", "In the last 10 minutes 1 of 2 callbacks failed.")
    assert "cache" not in reported


def test_calls_without_the_store_in_any_process_are_reported() -> None:
    counter = CacheCounter("elsewhere", shdicts["default"])
    counter.now.storeless = 1200
    run(counter.flush())
    message = "In the last 10 minutes 1,200 calls did without L2, because its store was down."
    assert findings()["cache elsewhere"] == ("warning", message)


def test_callbacks_that_failed_long_ago_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = mlcaches["default"].counter
    now = counter.wall()
    with monkeypatch.context() as patch:
        patch.setattr(counter, "wall", lambda: now - 660)
        with pytest.raises(CallbackFailed):
            mlcaches["default"].get("k", raises(ValueError("boom")))
        mlcaches["default"].stats()
    assert set(findings()) == {"cache"}


def test_a_dictionary_that_does_not_answer_is_reported(site: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    dicts = {**site.RESTY_DJANGO["SHARED_DICTS"], "away": {"PATH": str(tmp_path / "file")}}
    site.RESTY_DJANGO = {
        **site.RESTY_DJANGO,
        "SHARED_DICTS": dicts,
        "CACHES": {"one": {"SHM": "away"}, "two": {"SHM_MISS": "away"}},
    }
    reported = findings()
    for subject in ("cache one", "cache two"):
        level, message = reported[subject]
        assert level == "error"
        assert "Its dictionary away is unavailable: " in message
    assert "cache default" not in reported
    with pytest.raises(CommandError, match="2 in error"):
        call_command("resty_check", only=["cache"], stdout=StringIO(), stderr=StringIO())


def test_a_cache_that_cannot_be_made_is_reported(site: Any) -> None:
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"one": {"SERIALIZER": "nowhere.Serializer"}}}
    site.CACHES = {**site.CACHES, "fast": {"BACKEND": OURS, "LOCATION": "nowhere"}}
    reported = findings()
    assert reported["cache one"][0] == "error"
    assert reported["cache one"][1].startswith("The cache cannot be created: ")
    assert "LOCATION" in reported["cache django-cache/nowhere"][1]


def test_a_channel_that_does_not_answer_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        polls = 0

        def register_listeners(self, listeners: Any) -> None: ...

        def broadcast(self, channel: str, data: str) -> None: ...

        def poll(self, timeout: float) -> None:
            self.polls += 1
            raise OSError("the line is dead")

    dead = Dead()
    first, second = (MLCache(name, ipc=dead, lru=LRU(9)) for name in ("first", "second"))
    reported = findings()
    assert reported["channel of first"][0] == "error"
    assert "cannot be received" in reported["channel of first"][1]
    assert "the line is dead" in reported["channel of first"][1]
    assert "channel of second" not in reported
    assert dead.polls == 1
    del first, second
    polled: list[object] = []
    monkeypatch.setattr(EventChannel, "poll", lambda self, timeout: polled.append(self))
    mlcaches["default"].get("k", value(1))
    over_events = MLCache("other", lru=LRU(9))
    findings()
    assert len(polled) == 1
    assert over_events.channel is not None
