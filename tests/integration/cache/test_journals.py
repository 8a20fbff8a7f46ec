"""Invalidations within writes: in the journal of an LMDB dictionary, and in the scripts of Redis.

Private names: `_follower` and `_retry_at`, to try again at once a dictionary that is left alone for a while.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import caches as django_caches

from resty_django import events
from resty_django.cache import LRU, ChannelFailed, MLCache
from resty_django.cache.backend.store import BackendStore
from resty_django.cache.broadcasts import journal_entries
from resty_django.events import runtime
from resty_django.sansio import run
from resty_django.shdict import NoMemory, Unavailable, shdicts
from tests.dictionaries import MIB
from tests.integration.cache.backends import OURS
from tests.integration.cache.conftest import value
from tests.integration.cache.tools import in_journal

NAMES = ("default", "other", "events")
Become = Callable[[str], None]


@pytest.fixture
def become(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Become]:
    """Take the part of another process. Dictionaries are as small as possible."""
    dicts = {name: {"PATH": str(tmp_path / "dicts"), "SIZE": MIB} for name in NAMES}
    settings.RESTY_DJANGO = {"SHARED_DICTS": dicts, "EVENTS": {"INTERVAL": 0.01}}
    runtime.reset()
    monkeypatch.setattr(journal_entries.sender, "token", "A")
    yield lambda who: monkeypatch.setattr(journal_entries.sender, "token", who)
    runtime.reset()


def pair(name: str = "c", dictionary: str = "default") -> tuple[MLCache, MLCache]:
    """The same cache in two processes. The second one has polled."""
    writer, reader = (MLCache(name, dictionary, lru=LRU(5000), ttl=1000, on_error="raise") for _ in range(2))
    reader.update()
    return writer, reader


def test_a_write_is_one_entry_and_no_event(become: Become) -> None:
    writer, _ = pair()
    before = runtime.channel().last()
    writer.set("k", 1)
    writer.delete("k")
    writer.purge()
    writer.set("k", 1, tags=("t",))
    writer.invalidate_tags("t")
    kinds = ["invalidations", "invalidations", "purge", "invalidations", "tags"]
    assert [channel for channel, _ in in_journal(shdicts["default"])] == [f"mlcache:{kind}:c" for kind in kinds]
    assert runtime.channel().last() == before


def test_a_process_that_reads_too_late_empties_l1(become: Become, caplog: pytest.LogCaptureFixture) -> None:
    writer, reader = pair()
    reader.get("k", value("old"))
    reader.get("same", value("same"))
    writer.set("k", "new")
    for number in range(3000):
        writer.set("other", number)
    become("B")
    assert reader.get("k") == "old"
    reader.update()
    assert reader.lru.count() == 0
    assert (reader.get("k"), reader.get("same")) == ("new", "same")
    reader.update()
    assert reader.lru.count() == 2


def test_a_process_whose_dictionary_was_created_again_empties_l1(become: Become, tmp_path: Path) -> None:
    writer, reader = pair()
    writer.set("elsewhere", 1)
    become("B")
    reader.update()
    reader.get("k", value("old"))
    for name in NAMES:
        shdicts[name].close()
    shutil.rmtree(tmp_path / "dicts")
    become("A")
    writer.set("elsewhere", 2)
    become("B")
    reader.update()
    assert reader.lru.count() == 0


def test_caches_receive_changes_of_their_keys_in_all_dictionaries(become: Become) -> None:
    pairs = [pair("one"), pair("two"), pair("three", "other")]
    for number, (writer, reader) in enumerate(pairs):
        become("B")
        for _, other in pairs:
            other.get("k", value("old"))
        become("A")
        writer.set("k", number)
        become("B")
        pairs[0][1].update()
        assert [other.lru.get("k") for _, other in pairs] == [*range(number), None, *["old"] * (2 - number)]
        assert reader.get("k") == number


@pytest.mark.parametrize("key", ["k" * 5000, "ключ", b"\xff", "a\0b"], ids=ascii)
def test_events_with_any_key_arrive(become: Become, key: Any) -> None:
    writer, reader = pair("na\0me")
    reader.get(key, value("old"))
    reader.get("same", value("same"))
    writer.set(key, "new")
    become("B")
    reader.update()
    assert reader.lru.get_keys() == ["same"]
    assert reader.get(key) == "new"


def test_values_and_events_in_one_dictionary(become: Become, caplog: pytest.LogCaptureFixture) -> None:
    writer, reader = pair("c", "events")
    heard: list[Any] = []
    events.register(lambda data, *event_args: heard.append(data), "s")
    reader.get("k", value("old"))
    events.post("s", "e", 1)
    writer.set("k", "new")
    events.post("s", "e", 2)
    become("B")
    reader.update()
    assert heard == [1, 2]
    assert reader.get("k") == "new"
    assert not caplog.records


def test_an_unavailable_dictionary_is_logged_once_and_delays_no_other(
    become: Become, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*args: Any) -> Any:
        raise Unavailable("no answer")

    broken, other = pair("broken"), pair("other", "other")
    for _, reader in (broken, other):
        reader.get("k", value("old"))
    for writer, _ in (broken, other):
        writer.set("k", "new")
    become("B")
    with monkeypatch.context() as patch:
        patch.setattr(shdicts["default"], "journal_end", down)
        for _ in range(3):
            with pytest.raises(ChannelFailed, match="could not poll ipc events: no answer"):
                broken[1].update()
        other[1].update()
        assert (broken[1].get("k"), other[1].get("k")) == ("old", "new")
    assert [record.getMessage() for record in caplog.records] == [
        "Invalidations in <LmdbDict 'default'> are not received until it is back: no answer"
    ]
    monkeypatch.setattr("resty_django.cache.broadcasts.follower.RETRY_SECONDS", 0)
    for follower in (broken[1].channel._follower,):  # type: ignore[union-attr]
        follower._retry_at = 0
    broken[1].update()
    assert broken[1].get("k") == "new"


def test_a_value_that_does_not_fit_changes_nothing(become: Become) -> None:
    writer, reader = pair()
    writer.set("k", "old")
    become("B")
    reader.update()
    reader.get("k")
    become("A")
    with pytest.raises(NoMemory):
        writer.set("k", "x" * 2 * MIB)
    become("B")
    reader.update()
    assert (reader.get("k"), writer.get("k")) == ("old", "old")


def test_a_value_that_does_not_fit_into_djangos_cache_is_deleted_everywhere(become: Become, settings: Any) -> None:
    config = {"BACKEND": OURS, "LOCATION": "default", "OPTIONS": {"LRU_TTL": 0}}
    settings.CACHES = {"default": config}
    pages = django_caches["default"]
    pages.set("k", "old")
    become("B")
    pages.update()
    assert pages.get("k") == "old"
    become("A")
    elsewhere = BackendStore("default", pages.store.options)
    run(elsewhere.set(pages.make_key("k"), "x" * 2 * MIB, 0))
    assert elsewhere.shm.get(pages.make_key("k")) is None
    become("B")
    assert pages.get("k") == "old"
    pages.update()
    assert pages.get("k") is None


def test_a_separate_dictionary_for_none(become: Become) -> None:
    writer, reader = (MLCache("c", shm_miss="other", lru=LRU(9), ttl=1000, neg_ttl=1000) for _ in range(2))
    reader.update()
    for stored in ("one", None, "two", None):
        become("A")
        writer.set("k", stored)
        become("B")
        reader.update()
        assert reader.lookup("k") == (stored, 2)
        assert reader.lookup("k") == (stored, 1)
    become("A")
    writer.delete("k")
    become("B")
    reader.update()
    assert reader.lookup("k").level.name == "MISS"


# --- Redis ---


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that are sent."""
    sent: list[str] = []
    execute = redis.Redis.execute_command

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        sent.append(str(args[0]))
        return execute(self, *args, **options)

    monkeypatch.setattr(redis.Redis, "execute_command", counted)
    return sent


def on_redis(settings: Any, redis_cache: str, *names: str) -> None:
    dicts = settings.RESTY_DJANGO["SHARED_DICTS"]
    remote = {"ENGINE": "redis", "ALIAS": redis_cache}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {**dicts, **dict.fromkeys(names, remote)}}


@pytest.mark.redis
def test_a_write_to_redis_is_one_command(redis_cache: str, become: Become, settings: Any, commands: list[str]) -> None:
    on_redis(settings, redis_cache, "default", "events")
    writer, reader = pair()
    writer.set("k", "warm")
    writer.delete("k")
    reader.get("k", value("old"))
    commands.clear()
    writer.set("k", "new")
    assert commands == ["EVALSHA"]
    become("B")
    reader.update()
    assert reader.get("k") == "new"
    become("A")
    commands.clear()
    writer.delete("k")
    assert commands == ["EVALSHA"]
    become("B")
    reader.update()
    assert reader.lookup("k").level.name == "MISS"


@pytest.mark.redis
def test_a_write_of_many_keys_to_redis_is_one_command(
    redis_cache: str, become: Become, settings: Any, commands: list[str]
) -> None:
    on_redis(settings, redis_cache, "default", "events")
    writer, reader = pair()
    writer.set_many({"one": 1, "two": 2})
    writer.delete_many(["one", "two"])
    for key in ("one", "two"):
        reader.get(key, value("old"))
    commands.clear()
    writer.set_many({"one": 1, "two": 2})
    assert commands == ["EVALSHA"]
    become("B")
    reader.update()
    assert reader.get_many(["one", "two"]) == {"one": 1, "two": 2}
    become("A")
    commands.clear()
    writer.delete_many(["one", "two"])
    assert commands == ["EVALSHA"]
    become("B")
    reader.update()
    assert reader.lru.count() == 0


@pytest.mark.redis
@pytest.mark.parametrize("remote", ["default", "events"])
def test_values_and_events_in_different_stores(redis_cache: str, become: Become, settings: Any, remote: str) -> None:
    """The events reach the others, and for values in LMDB the journal, too."""
    on_redis(settings, redis_cache, remote)
    writer, reader = pair()
    for stored in ("one", "two"):
        become("A")
        reader.get("k", value("zero"))
        writer.set("k", stored)
        become("B")
        reader.update()
        assert reader.get("k") == stored
    become("A")
    writer.purge()
    become("B")
    reader.update()
    assert reader.lru.count() == 0
