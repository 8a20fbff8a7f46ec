"""Entries that other programs wrote under our keys: they count as absent, and none of their code runs."""

from __future__ import annotations

import logging
import pickle
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpResponse

from resty_django.cache.backend import entries
from resty_django.cache.storage import records
from resty_django.shdict import SharedDict, shdicts
from tests.integration.cache.backends import OURS, Api, fresh

KEY = ":1:k"
HEAD = struct.calcsize("<BBdd")
PLAIN, SIGNED = records.ENTRY, records.ENTRY | records.SIGNED

loaded: list[str] = []


def explode() -> None:
    loaded.append("boom")


class Bomb:
    """Records that it was loaded."""

    def __reduce__(self) -> Any:
        return explode, ()


class Token:
    """An object that can be changed, and can be the key of a dict."""

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def kind(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[str]:
    loaded.clear()
    for _ in fresh(request, settings, tmp_path, request.param):
        yield request.param
    loaded.clear()


@pytest.fixture
def api(kind: str) -> Api:
    return Api(kind, twins=kind == "redis")


@pytest.fixture
def shm(kind: str) -> SharedDict:
    return shdicts["pages"]


async def is_a_miss(api: Api, caplog: pytest.LogCaptureFixture, reason: str, key: str = "k") -> None:
    """It counts as absent, with one line in the log and nothing loaded, and its place is free."""
    api.cache.store.lru.flush_all()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        assert await api.get(key, "absent") == "absent"
        assert await api.get(key, "absent") == "absent"
    assert loaded == []
    assert [record.message for record in caplog.records if reason in record.message and key in record.message]
    assert len(caplog.records) == 1
    assert await api.add(key, "new") is True
    assert await api.get(key) == "new"


async def test_signed_pickles_are_loaded(api: Api) -> None:
    """So that the other tests show something."""
    await api.set("k", Bomb())
    await api.get("k")
    assert loaded == ["boom"]


async def test_a_byte_that_was_changed(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    for where in (1, 8, 9, 16, HEAD, HEAD + 31, HEAD + 32, -1):
        await api.set("k", Bomb())
        raw = bytearray(shm.get(KEY))
        raw[where] ^= 1
        shm.set(KEY, bytes(raw))
        await is_a_miss(api, caplog, "its signature is invalid")


async def test_a_pickle_with_an_extended_life(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    """In the dictionary and in its head, as somebody does who brings back an old value."""
    for stored, ttl in ((1e9, 0.0), (1e9, 1e9), (0.0, 60.0)):
        await api.set("k", Bomb(), 60)
        raw = shm.get(KEY)
        shm.set(KEY, struct.pack("<BBdd", records.LAYOUT, SIGNED, stored, ttl) + raw[HEAD:])
        assert await api.touch("k", 1000) is False, "nothing is signed that was not signed before"
        await is_a_miss(api, caplog, "its signature is invalid")


async def test_an_old_pickle_that_is_brought_back_after_its_time(
    api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.set("k", Bomb(), 60)
    raw, store = shm.get(KEY), api.cache.store
    now = store.clock()
    monkeypatch.setattr(store, "clock", lambda: now + 60 + entries.MAX_CLOCK_SKEW_SECONDS + 1)
    shm.set(KEY, raw)
    await is_a_miss(api, caplog, "it had expired before it was read")


async def test_the_clocks_of_two_machines_may_differ(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.set("k", {1, 2}, 1)
    store = api.cache.store
    now = store.clock()
    for shift in (-entries.MAX_CLOCK_SKEW_SECONDS, entries.MAX_CLOCK_SKEW_SECONDS - 1):
        store.lru.flush_all()
        monkeypatch.setattr(store, "clock", lambda shift=shift: now + shift)
        assert await api.get("k") == {1, 2}


async def test_touch_signs_a_pickle_again(api: Api, shm: SharedDict) -> None:
    await api.set("k", {1, 2}, 60)
    before = shm.get(KEY)
    assert await api.touch("k", 1000) is True
    assert shm.get(KEY) != before
    api.cache.store.lru.flush_all()
    assert await api.get("k") == {1, 2}


async def test_an_entry_moved_from_another_key(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    await api.set("other", Bomb())
    shm.set(KEY, shm.get(":1:other"))
    await is_a_miss(api, caplog, "its signature is invalid")


async def test_an_entry_moved_from_another_version_or_prefix(
    api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture
) -> None:
    await api.set("k", Bomb(), version=2)
    await api.of("prefixed").set("k", Bomb())
    for name in (":2:k", "other:1:k"):
        shm.set(KEY, shm.get(name))
        await is_a_miss(api, caplog, "its signature is invalid")


async def test_an_entry_moved_from_another_dictionary(
    api: Api, shm: SharedDict, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CACHES = {**settings.CACHES, "elsewhere": {"BACKEND": OURS, "LOCATION": "default"}}
    await api.of("elsewhere").set("k", Bomb())
    shdicts["pages"].set(KEY, shdicts["default"].get(KEY))
    await is_a_miss(api, caplog, "its signature is invalid")


async def test_an_entry_without_signature(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    data = pickle.dumps(Bomb())
    head = struct.pack("<BBdd", records.LAYOUT, SIGNED, 0, 0)
    for raw in (head, head + data, head + bytes(32) + data, head + data[:5]):
        shm.set(KEY, raw)
        await is_a_miss(api, caplog, "its signature is invalid")


async def test_an_entry_of_another_site(
    api: Api, shm: SharedDict, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = settings.SECRET_KEY
    settings.SECRET_KEY = "the key of another site"
    await api.set("k", Bomb())
    settings.SECRET_KEY = before
    await is_a_miss(api, caplog, "its signature is invalid")


async def test_old_keys_still_read(api: Api, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    await api.set("k", {1, 2})
    await api.set("again", {1, 2})
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "a new key"
    assert await api.get("k") == {1, 2}
    await api.set("new", {3})
    await api.set("again", {4})
    settings.SECRET_KEY_FALLBACKS = []
    api.cache.store.lru.flush_all()
    assert await api.get("new") == {3}
    assert await api.get("again") == {4}
    await is_a_miss(api, caplog, "its signature is invalid")


FOREIGN = [
    "a text",
    True,
    [1, 2],
    {"a": 1},
    b"",
    b"bytes",
    pickle.dumps(Bomb()),
    b"\x00" * 100,
    struct.pack("<BBdd", records.LAYOUT, 0, 0, 0) + b"\x01",
]


async def test_items_of_other_programs(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    for raw in FOREIGN:
        shm.set(KEY, raw)
        assert await api.touch("k", 100) is False
        await is_a_miss(api, caplog, "it is not an entry of this cache")


async def test_unreadable_entries(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    for body in (b"", b"\xc1", b"\x92\x01", b"\x01\x02", b"\xa2\xff\xfe", b"\x91" * 20_000 + b"\x01"):
        shm.set(KEY, struct.pack("<BBdd", records.LAYOUT, PLAIN, 0, 0) + body)
        await is_a_miss(api, caplog, "it cannot be loaded: ")


async def test_a_list_of_others_stays(api: Api, shm: SharedDict, caplog: pytest.LogCaptureFixture) -> None:
    shm.rpush(KEY, "item")
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        assert await api.get("k", "absent") == "absent"
    assert "it is not an entry of this cache" in caplog.text
    assert shm.lpop(KEY) == "item"


async def test_a_removed_class(api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    gone = type("Gone", (), {"__module__": __name__, "__qualname__": "Gone"})
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "Gone", gone, raising=False)
    await api.set("k", gone())
    monkeypatch.delattr(module, "Gone")
    await is_a_miss(api, caplog, "it cannot be loaded: AttributeError")


async def test_unstorable_values_raise_for_the_caller(api: Api) -> None:
    await api.set("k", "old")
    for call in (api.set, api.add):
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            await call("k", lambda: None)
    assert await api.get("k") == "old"


async def test_only_values_that_need_a_pickle_have_one(api: Api, shm: SharedDict) -> None:
    for value, in_l1 in (
        (1, int),
        (1.5, float),
        ("text", PLAIN),
        (None, PLAIN),
        (True, PLAIN),
        ([1, {"a": [b"x", None]}], PLAIN),
        (2**64, SIGNED),
        ((1,), SIGNED),
        ([(1,)], SIGNED),
        (HttpResponse("x"), SIGNED),
    ):
        await api.set("k", value)
        raw = shm.get(KEY)
        assert (raw[1] if type(raw) is bytes else type(raw)) == in_l1, value


async def test_room_that_runs_out(api: Api, settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A value that is too large is not stored, the previous value is deleted, and no error is raised."""
    if api.kind == "redis":
        pytest.skip("Redis has the space of its server")
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {
            "pages": {"PATH": str(tmp_path / "small"), "SIZE": 1024 * 1024},
            "events": {"PATH": str(tmp_path / "small")},
        }
    }
    await api.set("k", "old")
    assert await api.get("k") == "old"
    large = b"x" * 1024 * 1024
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        await api.set("k", large)
        assert await api.get("k") is None
        assert await api.add("k", large) is False
        assert await api.set_many({"small": 1, "large": large}) == ["large"]
    assert "was not stored in" in caplog.text
    assert await api.get("small") == 1


async def test_a_reader_during_a_write_keeps_no_old_value(api: Api) -> None:
    """A reader that has the old value from L2, and comes to L1 after the writer was there."""
    await api.set("k", "old")
    store = caches["default"].store
    version = store.lru.version(KEY)
    raw = store.shm.get(KEY)
    await api.set("k", "new")
    store.keep(KEY, store.record(raw, KEY), version)
    assert await api.get("k") == "new"


async def test_counts(api: Api) -> None:
    await api.set_many({"k": "text", "n": 1})
    for key in ("k", "k", "k", "n", "absent"):
        await api.get(key)
    stats = await api.stats()
    assert (stats.l1, stats.l2, stats.misses) == (2, 2, 1)


async def test_keys_of_a_dict_are_not_shared(api: Api) -> None:
    await api.set("k", {Token("x"): 1})
    replies = [await api.get("k") for _ in range(3)]  # from L2, then from L1
    assert [[token.text for token in reply] for reply in replies] == [["x"]] * 3
    assert len({id(token) for reply in replies for token in reply}) == 3


async def test_without_l1(kind: str, request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> None:
    for twins in (False, True):
        for _ in fresh(request, settings, tmp_path, kind, LRU_SIZE=0):
            api = Api(kind, twins)
            await api.set("k", "text")
            for _ in range(3):
                assert await api.get("k") == "text"
            assert shdicts["pages"].delete(KEY) is True
            assert await api.get("k") is None
            assert (await api.stats()).l1 == 0
