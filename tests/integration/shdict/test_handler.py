"""`shdicts`: the dictionaries of the settings by name."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from resty_django.limits.stores import store_of
from resty_django.shdict import UnknownDict, shdicts
from resty_django.shdict.lmdb import LmdbDict, files
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import MIB


@pytest.fixture
def site(tmp_path: Path, redis_cache: str) -> Iterator[dict[str, Any]]:
    named: dict[str, Any] = {
        "default": {"PATH": tmp_path, "SIZE": 2 * MIB},
        "other": {"PATH": tmp_path, "SIZE": MIB},
        "remote": {"ENGINE": "redis", "ALIAS": redis_cache, "PREFIX": "mine:", "STALE": 5},
    }
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": named}):
        yield named
    shdicts.close_all()


@pytest.mark.redis
def test_the_settings_make_the_dictionaries(site: dict[str, Any], valkey: Any) -> None:
    assert set(shdicts) == {"default", "bans", "events", "limits", "other", "remote"}
    assert isinstance(shdicts["default"], LmdbDict)
    assert (shdicts["default"].name, shdicts["default"].capacity()) == ("default", 2 * MIB)
    assert isinstance(shdicts["remote"], RedisDict)
    for name in site:
        shdicts[name].set("name", name)
        assert shdicts[name] is shdicts[name]
    assert [shdicts[name].get("name") for name in site] == ["default", "other", "remote"]
    assert valkey.keys() == [b"mine:name"]


@pytest.mark.redis
def test_a_name_that_is_not_in_the_settings_is_an_error(site: dict[str, Any]) -> None:
    with pytest.raises(UnknownDict, match=r"'oter'.*'other'"):
        shdicts["oter"]
    with pytest.raises(LookupError, match=r"which has default, .*other, remote"):
        shdicts["oter"]


@pytest.mark.redis
def test_a_dictionary_of_lmdb_with_unchanged_settings_stays_the_same_object(site: dict[str, Any]) -> None:
    before = shdicts["default"]
    second = shdicts["other"]
    remote, outage = shdicts["remote"], store_of(shdicts["remote"]).breaker
    outage.record_failure(ConnectionError("refused"))
    before.set("k", "v")
    second.set("k", "v")
    changed = {**site, "other": {**site["other"], "SIZE": 3 * MIB}}
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": changed}):
        assert before.get("k") == "v"
        assert shdicts["default"] is before
        assert shdicts["other"] is not second
        assert shdicts["other"].capacity() == 3 * MIB
        assert shdicts["other"].get("k") is None
        assert shdicts["remote"] is not remote
        assert not store_of(shdicts["remote"]).breaker.down
    assert shdicts["default"].get("k") == "v"
    assert shdicts["other"] is second
    assert second.get("k") is None


@pytest.mark.redis
def test_the_mapping_holds_all_configured_dictionaries_before_their_first_use(site: dict[str, Any]) -> None:
    names = ["bans", "default", "events", "limits", "other", "remote"]
    assert sorted(shdicts) == sorted(shdicts.keys()) == names
    assert len(shdicts) == 6
    assert all(name in shdicts for name in names)
    assert "oter" not in shdicts
    assert shdicts.get("oter") is None
    second = shdicts["other"]
    assert shdicts.get("oter", second) is shdicts.get("other") is second
    assert {dictionary.name for dictionary in shdicts.values()} == set(names)
    assert dict(shdicts) == dict(shdicts.items()) == {name: shdicts[name] for name in names}


def test_a_site_without_settings_has_one_in_memory() -> None:
    with override_settings(RESTY_DJANGO={}):
        assert "default" in shdicts
        default = shdicts["default"]
        default.set("test_handler", "v")
        assert default.capacity() == 32 * MIB
        folders = [base / files.site_folder() for base in (files.MEMORY_FOLDER, Path(files.tempfile.gettempdir()))]
        assert any((folder / "default.card").exists() for folder in folders)
        assert shdicts["default"].get("test_handler") == "v"
        default.delete("test_handler")
    shdicts.close_all()


def test_wrong_settings_raise_an_error_on_use() -> None:
    with (
        override_settings(RESTY_DJANGO={"SHARED_DICTS": {"default": {"SIZE": 5}}}),
        pytest.raises(ImproperlyConfigured, match="must be at least 1048576"),
    ):
        shdicts["default"]


@pytest.mark.redis
def test_threads_get_one_object(site: dict[str, Any]) -> None:
    for _ in range(20):
        shdicts.close_all()
        with ThreadPoolExecutor(5) as pool:
            instances = list(pool.map(shdicts.__getitem__, ["default"] * 5))
        assert len({id(instance) for instance in instances}) == 1
