"""The admin of shared dictionaries: the list, the page of one, keys and values."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.test import Client, override_settings

from resty_django.models import SharedDictionary
from resty_django.shdict import SharedDict, shdicts

pytestmark = [pytest.mark.django_db, pytest.mark.db]

LIST = "/admin/resty_django/shareddictionary/"
PAGE = f"{LIST}default/change/"
HOSTILE = "<script>alert('x')</script>&\"{{ x }}%s\u202e\x00\x1bé"
SHOWN = "<script>alert('x')</script>&\"{{ x }}%s\\u202e\\x00\\x1bé"


def html(reply: Any) -> str:
    assert reply.status_code == 200, reply
    text: str = reply.content.decode()
    return text


def row(text: str, name: str) -> str:
    """Return the row of a dictionary in the list."""
    rows = text.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")
    (match,) = (line for line in rows if f">{name}</a>" in unescape(line))
    return match


# --- figures --------------------------------------------------------------------------------------------------------


def test_migrate_creates_the_permissions() -> None:
    content_type = ContentType.objects.get_for_model(SharedDictionary)
    assert set(content_type.permission_set.values_list("codename", flat=True)) == {
        "view_shareddictionary",
        "view_dictionary_items",
        "delete_dictionary_item",
        "flush_expired_items",
        "flush_dictionary",
    }


def test_commands_work_without_a_table(tmp_path: Path) -> None:
    for options in ({}, {"use_base_manager": True}):
        call_command("dumpdata", "resty_django", output=str(tmp_path / "dump.json"), **options)
    assert list(SharedDictionary.objects.all()) == []


def test_the_list_shows_the_figures(admin_client: Client, site: Callable[..., None]) -> None:
    site(other={"SIZE": 4 * 1024 * 1024})
    for number in range(1234):
        shdicts["default"].set(f"key{number}", number)
    first, second = (row(html(admin_client.get(LIST)), name) for name in ("default", "other"))
    assert f'<a href="{PAGE}">default</a>' in first
    assert "1.5\xa0MB" in first
    assert "1,234" in first
    assert "lmdb" in first
    assert 750 < int(first.partition('optimum="1000" value="')[2].partition('"')[0]) < 1000
    assert "3.0\xa0MB" in second


def test_forcible_evictions_are_counted(admin_client: Client, site: Callable[..., None]) -> None:
    site()
    while not shdicts["default"].set(f"{time.monotonic_ns()}", "x" * 1500).forcible:
        pass
    evicted = shdicts["default"].stats().forcible
    assert evicted
    assert f'<td class="resty-number">{evicted}</td>' in html(admin_client.get(LIST))
    assert f"<td>{evicted} <span" in html(admin_client.get(PAGE))


@pytest.mark.redis
def test_redis_counts_its_keys_when_asked(
    admin_client: Client, site: Callable[..., None], valkey_url: str, valkey: Any
) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    site(caches={"store": cache}, shared={"ENGINE": "redis", "ALIAS": "store"})
    for number in range(3):
        shdicts["shared"].set(f"key{number}", number)
    line = row(html(admin_client.get(LIST)), "shared")
    assert "redis" in line
    assert line.count('<td class="resty-number">–</td>') >= 2
    page = f"{LIST}shared/change/"
    assert "Count them" in html(admin_client.get(page))
    assert "<td>3 <span" in html(admin_client.get(f"{page}?count"))


def test_a_dictionary_that_cannot_be_used_is_a_row_with_the_reason(
    admin_client: Client, site: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    site(away={"PATH": tmp_path / "file"}, nocache={"ENGINE": "redis", "ALIAS": "default"})
    good, away, nocache = (row(html(admin_client.get(LIST)), name) for name in ("default", "away", "nocache"))
    assert "Unavailable" not in good
    assert "Unavailable:" in away
    assert "PATH" in away
    assert "ImproperlyConfigured" in nocache
    page = f"{LIST}away/change/"
    text = html(admin_client.get(page))
    assert "Unavailable:" in text
    for query in ("?key=x", "?find=x", "?count"):
        assert "PATH" in html(admin_client.get(page + query))
    for action, data in (("delete-key", {"key": "x"}), ("flush-expired", {}), ("flush-all", {"confirmation": "away"})):
        reply = admin_client.post(f"{LIST}away/{action}/", data)
        assert "Not done:" in html(reply)


@pytest.mark.redis
def test_a_redis_that_is_down_is_a_row_too(admin_client: Client, site: Callable[..., None]) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    site(caches={"gone": cache}, shared={"ENGINE": "redis", "ALIAS": "gone"})
    good, down = (row(html(admin_client.get(LIST)), name) for name in ("default", "shared"))
    assert "Unavailable" not in good
    assert "Unavailable:" in down
    assert "gone" in down


def test_the_page_shows_wrong_settings(admin_client: Client) -> None:
    with override_settings(RESTY_DJANGO={"SHARED_DICTS": {"default": {"SIZE": 1}}}):
        assert "must be at least 1048576" in html(admin_client.get(LIST))


def test_names_of_any_kind_have_a_page(admin_client: Client, site: Callable[..., None]) -> None:
    name = "a/b_c <b>é?#%"
    site(**{name: {"SIZE": 2**20}})
    text = html(admin_client.get(LIST))
    assert "<b>é" not in text
    address = row(text, name).partition('href="')[2].partition('"')[0]
    shdicts[name].set("k", "the value")
    assert "the value" in html(admin_client.get(f"{address}?key=k"))
    reply = admin_client.post(address.replace("/change/", "/flush-all/"), {"confirmation": name})
    assert reply.headers["Location"] == address
    assert shdicts[name].get("k") is None
    assert name in unescape(html(admin_client.get(address.replace("/change/", "/history/"))))
    assert html(admin_client.get("/admin/"))


def test_a_dictionary_that_is_not_configured(admin_client: Client, site: Callable[..., None]) -> None:
    site()
    for page in ("change", "history", "delete-key", "flush-all", "flush-expired"):
        assert admin_client.get(f"{LIST}none/{page}/").status_code == 302


# --- keys and values ------------------------------------------------------------------------------------------------


VALUES: list[tuple[Any, str, str]] = [
    ("two\nlines\t", "text, 10 characters", "two\nlines\t"),
    ("", "text, 0 characters", '"resty-value"></pre>'),
    (42, "whole number", ">42<"),
    (1.5, "number", ">1.5<"),
    (True, "true or false", ">True<"),
    (b"\xff\x00<b>", "bytes, 5 bytes", r"b'\xff\x00<b>'"),
    ([1, "a"], "list, as msgpack, 2 entries", "[1, 'a']"),
    ({"a": {"b": "<i>"}}, "dict, as msgpack, 1 entry", "{'a': {'b': '<i>'}}"),
]


def test_values_of_each_type_are_shown_with_their_type(admin_client: Client, dictionary: SharedDict) -> None:
    for value, kind, expected in VALUES:
        dictionary.set("k", value, flags=7)
        text = html(admin_client.get(f"{PAGE}?key=k"))
        assert "<i>" not in text
        assert "<b>" not in text
        plain = unescape(text)
        assert f"<td>{kind}</td>" in plain
        assert expected in plain
        assert "<td>never expires</td>" in plain
        assert "<td>7</td>" in plain


def test_a_value_is_shown_with_its_time_to_live(admin_client: Client, dictionary: SharedDict) -> None:
    dictionary.set("short", "v", 50)
    dictionary.set("long", "v", 90_000)
    dictionary.set("gone", "old value", 0.001)
    time.sleep(0.01)
    assert re.search(r"<td>(49|50) s</td>", html(admin_client.get(f"{PAGE}?key=short")))
    assert "<td>1 d</td>" in html(admin_client.get(f"{PAGE}?key=long"))
    text = html(admin_client.get(f"{PAGE}?key=gone"))
    assert "has expired" in text
    assert "Stale" in text
    assert "old value" in text


def test_a_list_shows_its_length(admin_client: Client, dictionary: SharedDict) -> None:
    for number in range(3):
        dictionary.rpush("queue", number)
    text = html(admin_client.get(f"{PAGE}?key=queue"))
    assert "<td>list, 3 items</td>" in text
    assert dictionary.llen("queue") == 3


def test_a_missing_key_is_reported(admin_client: Client, dictionary: SharedDict) -> None:
    assert "This key does not exist" in html(admin_client.get(f"{PAGE}?key=k"))


def test_hostile_keys_and_values_are_escaped(admin_client: Client, dictionary: SharedDict) -> None:
    dictionary.set(HOSTILE, {HOSTILE: HOSTILE})
    dictionary.set("plain", HOSTILE)
    text = html(admin_client.get(PAGE, {"key": "plain"}))
    assert "<script>alert" not in text
    assert f'<pre class="resty-value">{SHOWN}</pre>' in unescape(text)
    text = html(admin_client.get(PAGE, {"find": "alert"}))
    assert "<script>alert" not in text
    assert SHOWN in unescape(text)
    link = text.partition('<ol class="resty-keys">')[2].partition('href="')[2].partition('"')[0]
    text = html(admin_client.get(PAGE + unescape(link)))
    assert "<script>alert" not in text
    assert "dict, as msgpack" in text
    assert "\x00" not in text
    assert "\u202e" not in text
    html(admin_client.get(PAGE, {"key": HOSTILE, "find": HOSTILE}))
    html(admin_client.get(PAGE, {"find": HOSTILE}))


def test_keys_of_arbitrary_bytes_can_be_opened_and_deleted(admin_client: Client, dictionary: SharedDict) -> None:
    key = b"\xff\xfe\x00/binary"
    dictionary.set(key, "of a binary key")
    text = html(admin_client.get(PAGE, {"find": "binary"}))
    assert r"\udcff\udcfe\x00/binary" in text
    link = unescape(text.partition('<ol class="resty-keys">')[2].partition('href="')[2].partition('"')[0])
    text = html(admin_client.get(PAGE + link))
    assert "of a binary key" in text
    delete = unescape(text.partition(f'href="{LIST}default/delete-key/?')[2].partition('"')[0])
    assert r"\udcff\udcfe\x00/binary" in html(admin_client.get(f"{LIST}default/delete-key/?{delete}"))
    assert admin_client.post(f"{LIST}default/delete-key/?{delete}").status_code == 302
    assert dictionary.get(key) is None


def test_long_keys_and_values_are_cut(admin_client: Client, dictionary: SharedDict) -> None:
    dictionary.set("k" * 60_000, "v")
    dictionary.set("text", "t" * 100_000)
    dictionary.set("bytes", b"\xff" * 100_000)
    dictionary.set("list", list(range(50_000)))
    text = html(admin_client.get(PAGE, {"find": "k"}))
    assert "too long for a link" in text
    assert "k" * 200 + "…" in text
    assert len(text) < 30_000
    for key in ("text", "bytes", "list"):
        text = html(admin_client.get(PAGE, {"key": key}))
        assert "…</pre>" in text
        assert len(text) < 30_000


def test_the_search_is_bounded(admin_client: Client, dictionary: SharedDict, monkeypatch: pytest.MonkeyPatch) -> None:
    from resty_django.admin import statistics

    for number in range(150):
        dictionary.set(f"{'even' if number % 2 == 0 else 'odd'}:{number}", number)
    text = html(admin_client.get(PAGE, {"find": ""}))
    assert text.count("?k=") == 100
    assert "Only the first 100 keys are shown" in text
    text = html(admin_client.get(PAGE, {"find": "odd:"}))
    assert text.count("?k=") == 75
    assert "so not all were searched" not in text
    monkeypatch.setattr(statistics, "MAX_SCANNED", 40)
    text = html(admin_client.get(PAGE, {"find": ":"}))
    assert text.count("?k=") == 40
    assert "so not all were searched" in text


def test_the_page_survives_an_invalid_token(admin_client: Client, dictionary: SharedDict) -> None:
    for token in ("%", "é", "=", "AA", "A" * 5000):
        html(admin_client.get(PAGE, {"k": token}))
        html(admin_client.get(f"{LIST}default/delete-key/", {"k": token}))


def test_the_page_survives_a_value_of_another_program(
    admin_client: Client, site: Callable[..., None], monkeypatch: Any
) -> None:
    site()
    monkeypatch.setattr(shdicts["default"], "get_stale", lambda key: 1 / 0)
    assert "ZeroDivisionError" in html(admin_client.get(PAGE, {"key": "k"}))
