"""The settings dict: typed, lazy, obeys override_settings, and clear about what is wrong."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from pytest_django import Settings

from resty_django import address
from resty_django.cache.mlcache.options import CacheSetup
from resty_django.cache.storage.compression import ALGORITHMS
from resty_django.conf import all_problems, conf, on_change
from resty_django.conf.schema import see_key
from resty_django.conf.sections.cache import CacheSettings
from resty_django.conf.sections.core import EventsSettings, SharedDictSettings
from resty_django.conf.sections.ids import IdsSettings, UdpSettings
from resty_django.conf.sections.qless import QueueRetention, RetentionSettings

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _empty(settings: Settings) -> None:
    settings.RESTY_DJANGO = {}


def test_an_empty_dict_means_the_defaults() -> None:
    assert conf.ids == IdsSettings()
    assert conf.ids.udp == UdpSettings(host="127.0.0.1", port=1200, max_datagram=20_000)
    assert (conf.ids.step, conf.ids.offset, conf.ids.wait, conf.ids.refresh) == (1, 0, 2.0, 1.0)


def test_a_site_without_the_dict_gets_the_defaults(settings: Settings) -> None:
    del settings.RESTY_DJANGO
    assert conf.ids == IdsSettings()


def test_nested_values_are_read_and_the_rest_keeps_its_default(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": 3, "OFFSET": 2, "UDP": {"PORT": 1201, "NETWORKS": ["10.0.0.0/8", "::1"]}}}
    assert (conf.ids.step, conf.ids.offset) == (3, 2)
    assert conf.ids.udp == UdpSettings(port=1201, networks=("10.0.0.0/8", "::1"))


def test_override_settings_holds_inside_and_ends_outside() -> None:
    before = conf.ids
    with override_settings(RESTY_DJANGO={"IDS": {"NODE": "b"}}):
        assert conf.ids.node == "b"
        with override_settings(RESTY_DJANGO={"IDS": {"NODE": "c"}}):
            assert conf.ids.node == "c"
        assert conf.ids.node == "b"
    assert conf.ids == before


def test_a_section_is_built_once() -> None:
    assert conf.ids is conf.ids


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        conf.ids.step = 2  # type: ignore[misc]


def test_whole_numbers_do_for_floats_and_paths_for_texts(settings: Settings, tmp_path: pathlib.Path) -> None:
    settings.RESTY_DJANGO = {"IDS": {"WAIT": 3, "ISSUE_LOG": tmp_path / "ids.log"}}
    assert conf.ids.wait == 3.0
    assert type(conf.ids.wait) is float
    assert conf.ids.issue_log == str(tmp_path / "ids.log")


WRONG: list[tuple[object, str]] = [
    ([], "RESTY_DJANGO must be a dict, not list."),
    ({"IDZ": {}}, 'RESTY_DJANGO["IDZ"] is not a setting. Did you mean "IDS"?'),
    ({3: {}}, "RESTY_DJANGO has the key 3; keys must be upper-case strings."),
    ({"IDS": None}, 'RESTY_DJANGO["IDS"] must be a dict, not None.'),
    (
        {"IDS": {"STEPP": 1}},
        'RESTY_DJANGO["IDS"]["STEPP"] is not a setting. Did you mean "STEP"?',
    ),
    ({"IDS": {"step": 1}}, 'RESTY_DJANGO["IDS"]["step"] is not a setting. Did you mean "STEP"?'),
    ({"IDS": {"XYZZY": 1}}, "Known keys: DATABASE, DATABASE_TIMEOUT, EAGER,"),
    ({"IDS": {"UDP": {"PORTS": 1}}}, 'Did you mean "PORT"?'),
    (
        {"IDS": {"STEP": "1"}},
        'RESTY_DJANGO["IDS"]["STEP"] must be a whole number, not \'1\' (str).',
    ),
    ({"IDS": {"STEP": True}}, '["STEP"] must be a whole number, not True (bool).'),
    ({"IDS": {"STEP": 1.0}}, '["STEP"] must be a whole number, not 1.0 (float).'),
    ({"IDS": {"EAGER": 1}}, '["EAGER"] must be True or False, not 1 (int).'),
    ({"IDS": {"WAIT": "2"}}, "[\"WAIT\"] must be a number, not '2' (str)."),
    ({"IDS": {"WAIT": True}}, '["WAIT"] must be a number, not True (bool).'),
    ({"IDS": {"NODE": None}}, '["NODE"] must be a text, not None.'),
    ({"IDS": {"DATABASE": 1}}, '["DATABASE"] must be a text or None, not int.'),
    ({"IDS": {"UDP": {"KEYS": "secret"}}}, '["KEYS"] must be a list of strings, not str.'),
    ({"IDS": {"UDP": {"KEYS": [b"x"]}}}, '["KEYS"] must be a list of strings; it contains an item of type bytes.'),
    ({"IDS": {"STEP": 0}}, '["STEP"] must be at least 1, not 0.'),
    ({"IDS": {"OFFSET": -1}}, '["OFFSET"] must be at least 0, not -1.'),
    (
        {"IDS": {"STEP": 2, "OFFSET": 2}},
        '["OFFSET"] must be less than STEP (2), not 2.',
    ),
    ({"IDS": {"REFRESH": 0}}, '["REFRESH"] must be greater than 0, not 0.0.'),
    ({"IDS": {"UDP": {"PORT": 70000}}}, '["PORT"] must be from 1 to 65535, not 70000.'),
    ({"IDS": {"UDP": {"NETWORKS": ["10.0.0.1/8"]}}}, """["NETWORKS"] holds '10.0.0.1/8', which is not a network"""),
    ({"IDS": {"DATABASE": "other"}}, "names the database 'other', which DATABASES does not have (it has default)."),
    ({"IDS": {"PYTHON_RULES": ["os"]}}, """["PYTHON_RULES"] holds 'os', which is not a dotted path"""),
    ({"IDS": {"LUA": {"MILLISECONDS": 0}}}, '["MILLISECONDS"] must be from 1 to 10000, not 0.'),
]


@pytest.mark.parametrize(("raw", "sentence"), WRONG)
def test_a_wrong_setting_is_named_when_it_is_used(settings: Settings, raw: Any, sentence: str) -> None:
    settings.RESTY_DJANGO = raw
    with pytest.raises(ImproperlyConfigured) as caught:
        _ = conf.ids
    assert sentence in str(caught.value)


def test_a_wrong_setting_is_named_again_at_the_next_use_and_gone_when_put_right(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"STEP": 0}}
    for _ in range(2):
        with pytest.raises(ImproperlyConfigured):
            _ = conf.ids
    settings.RESTY_DJANGO = {"IDS": {"STEP": 4}}
    assert conf.ids.step == 4


def test_importing_the_settings_module_reads_no_settings() -> None:
    code = "import resty_django.conf, resty_django.checks, resty_django.health, resty_django.health.site"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_messages_lead_to_the_page_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "SITE", "https://example.org")
    assert see_key(("IDS", "STEP")) == " See https://example.org/reference/settings.html#ids-step."


def test_a_site_has_dictionaries_that_it_does_not_name() -> None:
    assert conf.shared_dicts["default"] == SharedDictSettings()
    assert conf.shared_dicts["default"].size == 32 * 1024 * 1024
    assert conf.shared_dicts["events"] == SharedDictSettings(size=4 * 1024 * 1024)
    assert conf.shared_dicts["default"] == SharedDictSettings(
        engine="lmdb", size=32 * 1024 * 1024, path=None, alias="default", prefix=None, stale=60.0
    )


def test_settings_of_a_built_in_dictionary_keep_its_other_defaults(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"events": {"PATH": "/run/site"}}}
    assert conf.shared_dicts["events"] == SharedDictSettings(size=4 * 1024 * 1024, path="/run/site")


def test_dictionaries_have_the_names_in_the_settings(settings: Settings, tmp_path: pathlib.Path) -> None:
    before = list(conf.shared_dicts)
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {
            "hits": {"SIZE": 1024 * 1024, "PATH": tmp_path},
            "a.b ö/": {"ENGINE": "redis", "STALE": 5, "PREFIX": "x:"},
            "default": {"SIZE": 2 * 1024 * 1024},
        }
    }
    assert list(conf.shared_dicts) == [*before, "hits", "a.b ö/"]
    assert conf.shared_dicts["hits"] == SharedDictSettings(size=1024 * 1024, path=str(tmp_path))
    assert conf.shared_dicts["a.b ö/"] == SharedDictSettings(engine="redis", stale=5.0, prefix="x:")
    assert conf.shared_dicts["default"].size == 2 * 1024 * 1024
    assert conf.shared_dicts is conf.shared_dicts
    with pytest.raises(KeyError):
        conf.shared_dicts["other"]


WRONG_DICTS: list[tuple[object, str]] = [
    ([], 'RESTY_DJANGO["SHARED_DICTS"] must be a dict, not list.'),
    ({3: {}}, 'RESTY_DJANGO["SHARED_DICTS"] has the key 3; its keys must be names, strings of at least one character.'),
    ({"": {}}, """RESTY_DJANGO["SHARED_DICTS"] has the key ''; its keys must be names"""),
    (
        {"hits": None},
        'RESTY_DJANGO["SHARED_DICTS"]["hits"] must be a dict, not None.',
    ),
    ({"hits": {"SIZES": 1}}, 'RESTY_DJANGO["SHARED_DICTS"]["hits"]["SIZES"] is not a setting. Did you mean "SIZE"?'),
    ({"hits": {"SIZE": 1000}}, 'RESTY_DJANGO["SHARED_DICTS"]["hits"]["SIZE"] must be at least 1048576, not 1000.'),
    ({"hits": {"SIZE": 1024 * 1024 - 1}}, '["hits"]["SIZE"] must be at least 1048576, not 1048575.'),
    ({"hits": {"SIZE": 1e7}}, '["hits"]["SIZE"] must be a whole number, not 10000000.0 (float).'),
    ({"hits": {"SIZE": True}}, '["hits"]["SIZE"] must be a whole number, not True (bool).'),
    ({"hits": {"SIZE": None}}, '["hits"]["SIZE"] must be a whole number, not None.'),
    ({"hits": {"size": 2**21}}, '["hits"]["size"] is not a setting. Did you mean "SIZE"?'),
    ({"hits": {"ENGINE": "memcached"}}, """["hits"]["ENGINE"] must be "lmdb" or "redis", not 'memcached'."""),
    ({"hits": {"ENGINE": "LMDB"}}, """["hits"]["ENGINE"] must be "lmdb" or "redis", not 'LMDB'."""),
    ({"hits": {"ENGINE": None}}, '["hits"]["ENGINE"] must be a text, not None.'),
    ({"hits": {"ENGINE": ["redis"]}}, '["hits"]["ENGINE"] must be a text, not list.'),
    ({"hits": {"PATH": " "}}, '["hits"]["PATH"] must not be empty.'),
    ({"hits": {"PATH": 5}}, '["hits"]["PATH"] must be a text or None, not int.'),
    ({"hits": {"PREFIX": ""}}, '["hits"]["PREFIX"] must not be empty.'),
    ({"hits": {"PREFIX": b"x"}}, '["hits"]["PREFIX"] must be a text or None, not bytes.'),
    ({"hits": {"STALE": -1}}, '["hits"]["STALE"] must be at least 0, not -1.0.'),
    ({"hits": {"STALE": "60"}}, '["hits"]["STALE"] must be a number, not \'60\' (str).'),
    ({"hits": {"ALIAS": None}}, '["hits"]["ALIAS"] must be a text, not None.'),
    ({"hits": {"ALIAS": "store"}}, """["hits"]["ALIAS"] names the cache 'store', which CACHES does not have (it has"""),
    ({"default": {"SIZE": 1}}, '["default"]["SIZE"] must be at least 1048576, not 1.'),
    ({"good": {}, "bad": {"SIZE": "1"}}, '["bad"]["SIZE"] must be a whole number, not \'1\' (str).'),
]


@pytest.mark.parametrize(("raw", "sentence"), WRONG_DICTS)
def test_a_wrong_dictionary_is_named_when_any_is_used(settings: Settings, raw: Any, sentence: str) -> None:
    settings.RESTY_DJANGO = {"SHARED_DICTS": raw}
    with pytest.raises(ImproperlyConfigured) as caught:
        _ = conf.shared_dicts
    assert sentence in str(caught.value)
    assert next(problem.message for problem in all_problems()) in str(caught.value)


def test_another_cache_may_be_named_once_it_exists(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"hits": {"ENGINE": "redis", "ALIAS": "store"}}}
    with pytest.raises(ImproperlyConfigured):
        _ = conf.shared_dicts
    settings.CACHES = {
        **settings.CACHES,
        "store": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://x"},
    }
    assert conf.shared_dicts["hits"].alias == "store"


def test_dictionaries_with_other_settings_differ() -> None:
    assert hash(SharedDictSettings()) == hash(SharedDictSettings())
    assert SharedDictSettings() != SharedDictSettings(size=1024 * 1024)


def test_bounds_of_a_dictionary_are_allowed(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"SHARED_DICTS": {"hits": {"SIZE": 1024 * 1024, "STALE": 0, "PATH": None, "PREFIX": None}}}
    assert conf.shared_dicts["hits"] == SharedDictSettings(size=1024 * 1024, stale=0.0)


# --- QLESS ---


def test_queues_have_sections_of_their_limits(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"QLESS": {"RETENTION": {"QUEUES": {"mail": {"FAILED": "2d"}}}}}
    assert conf.qless.retention == RetentionSettings(queues={"mail": QueueRetention(failed=172_800.0)})


@pytest.mark.parametrize(
    ("queues", "sentence"),
    [
        ([], '["QUEUES"] must be a dict, not list.'),
        ({"": {}}, '["QUEUES"] has the key'),
        ({"mail": {"FAILED": "soon"}}, '["QUEUES"]["mail"]["FAILED"] is not valid.'),
        ({"mail": {"FAILED": 5}}, '["QUEUES"]["mail"]["FAILED"] must be at least 60, not 5.0.'),
        ({"mail": {"FAIL": 5}}, '["QUEUES"]["mail"]["FAIL"] is not a setting. Did you mean "FAILED"?'),
        ({"mail": {"FAILED_COUNT": -1}}, '["QUEUES"]["mail"]["FAILED_COUNT"] must be at least 0, not -1.'),
    ],
)
def test_wrong_limits_of_a_queue_are_named(settings: Settings, queues: Any, sentence: str) -> None:
    settings.RESTY_DJANGO = {"QLESS": {"RETENTION": {"QUEUES": queues}}}
    with pytest.raises(ImproperlyConfigured) as caught:
        _ = conf.qless
    assert f'RESTY_DJANGO["QLESS"]["RETENTION"]{sentence}' in str(caught.value)


# --- EVENTS ---


def test_events_have_their_defaults() -> None:
    assert conf.events == EventsSettings()
    assert conf.events == EventsSettings(
        dict="events",
        interval=0.01,
        timeout=2.0,
        retries=999,
        keep=10_000,
        autostart=True,
    )


def test_all_keys_of_events_may_have_their_lowest_values(settings: Settings) -> None:
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {"news": {}},
        "EVENTS": {
            "DICT": "news",
            "INTERVAL": 0,
            "TIMEOUT": 0.001,
            "RETRIES": 0,
            "KEEP": 100,
            "AUTOSTART": False,
        },
    }
    assert conf.events == EventsSettings(
        dict="news",
        interval=0.0,
        timeout=0.001,
        retries=0,
        keep=100,
        autostart=False,
    )
    assert type(conf.events.interval) is float


WRONG_EVENTS: list[tuple[object, str]] = [
    ([], 'RESTY_DJANGO["EVENTS"] must be a dict, not list.'),
    ({"SHM": "x"}, 'RESTY_DJANGO["EVENTS"]["SHM"] is not a setting. Known keys: AUTOSTART, DICT,'),
    ({"TIMEOUTS": 1}, '["TIMEOUTS"] is not a setting. Did you mean "TIMEOUT"?'),
    (
        {"DICT": "news"},
        """["DICT"] names the shared dictionary 'news', which SHARED_DICTS does not have """
        "(it has default, bans, events, limits).",
    ),
    ({"DICT": None}, '["DICT"] must be a text, not None.'),
    ({"INTERVAL": -0.001}, '["INTERVAL"] must be at least 0, not -0.001.'),
    ({"INTERVAL": "1"}, "[\"INTERVAL\"] must be a number, not '1' (str)."),
    ({"TIMEOUT": 0}, '["TIMEOUT"] must be greater than 0, not 0.0.'),
    ({"TIMEOUT": None}, '["TIMEOUT"] must be a number, not None.'),
    ({"INTERVAL": True}, '["INTERVAL"] must be a number, not True (bool).'),
    ({"INTERVAL": []}, '["INTERVAL"] must be a number, not list.'),
    ({"RETRIES": -1}, '["RETRIES"] must be at least 0, not -1.'),
    ({"RETRIES": 1.0}, '["RETRIES"] must be a whole number, not 1.0 (float).'),
    ({"KEEP": 99}, '["KEEP"] must be at least 100, not 99.'),
    ({"KEEP": "100"}, "[\"KEEP\"] must be a whole number, not '100' (str)."),
    ({"AUTOSTART": 1}, '["AUTOSTART"] must be True or False, not 1 (int).'),
]


@pytest.mark.parametrize(("raw", "sentence"), WRONG_EVENTS)
def test_a_wrong_setting_of_events_is_named(settings: Settings, raw: Any, sentence: str) -> None:
    settings.RESTY_DJANGO = {"EVENTS": raw}
    with pytest.raises(ImproperlyConfigured) as caught:
        _ = conf.events
    assert sentence in str(caught.value)
    assert [problem.message for problem in all_problems()] == [str(caught.value).partition(" See docs/")[0]]


@pytest.mark.parametrize("key", ["INTERVAL", "TIMEOUT"])
def test_durations_are_finite(settings: Settings, key: str) -> None:
    for value in ("nan", "inf"):
        settings.RESTY_DJANGO = {"EVENTS": {key: float(value)}}
        with pytest.raises(ImproperlyConfigured, match=rf'\["{key}"\]'):
            _ = conf.events


def test_events_may_travel_by_a_dictionary_that_is_always_there(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"EVENTS": {"DICT": "default"}}
    assert conf.events.dict == "default"


def test_on_change_calls_back_for_the_named_settings_alone() -> None:
    calls: list[str] = []
    on_change(lambda: calls.append("changed"), "CACHES", "MEDIA_ROOT")
    with override_settings(STATIC_ROOT="/srv/static"):
        assert calls == []
    with override_settings(MEDIA_ROOT="/srv/media"):
        assert calls == ["changed"]
    assert calls == ["changed", "changed"]


def test_a_section_that_is_not_set_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from django.conf import settings\n"
        "settings.configure(RESTY_DJANGO={})\n"
        "from resty_django.conf import all_problems\n"
        "assert all_problems() == []\n"
        "print([name for name in sys.modules if name.startswith('resty_django.conf.sections.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_compression_has_the_same_defaults_and_algorithms_in_the_settings_and_in_a_cache(settings: Settings) -> None:
    setup = CacheSetup(name="any")
    for name in ("compress_above", "decompress_limit"):
        assert getattr(CacheSettings(), name) == getattr(setup, name)
    for name in ALGORITHMS:
        settings.RESTY_DJANGO = {"CACHES": {"default": {"COMPRESS": name}}}
        assert conf.caches["default"].compress == name
