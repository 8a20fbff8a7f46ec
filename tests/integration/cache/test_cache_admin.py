"""The admin of caches: figures, options, items, deleting and purging; who may do what."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.cache import caches
from django.core.management import call_command
from django.test import Client

from resty_django.cache import LRU, Fresh, MLCache, SourceError, current_outages, mlcaches, overview
from resty_django.cache.admin import items
from resty_django.cache.circuit_breaker.breaker import StoreBreaker
from resty_django.cache.inventory import all_caches
from resty_django.cache.models import Cache
from resty_django.cache.statistics.reporter import CacheCounter
from resty_django.sansio import run
from resty_django.shdict import shdicts
from tests.integration.cache.conftest import value
from tests.integration.cache.tools import callback_took, in_journal
from tests.servers import until
from tests.staff import logged, plain, signed_in, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.db]

LIST = "/admin/resty_cache/cache/"
PAGE = f"{LIST}default/change/"
OURS = "resty_django.cache.backend.MLCacheBackend"
HOSTILE = "<script>alert('x')</script>&\"{{ x }}%s\u202e\x00é"
SHOWN = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;{{ x }}%s\\u202e\\x00é"
person = partial(signed_in, "resty_cache")
ACTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "delete-key": ("delete_cache_item", {"key": "k"}),
    "purge": ("purge_cache", {"confirmation": "default"}),
}


@pytest.fixture(autouse=True)
def _site(site: Any, tmp_path: Path) -> None:
    names = ("default", "events", "pages", "counts")
    site.RESTY_DJANGO = {
        **site.RESTY_DJANGO,
        "SHARED_DICTS": {name: {"PATH": str(tmp_path / "dicts"), "SIZE": 4 * 1024 * 1024} for name in names},
    }


@pytest.fixture
def of_django(site: Any) -> Iterator[Any]:
    """A cache of Django on the dictionary `pages`."""
    site.CACHES = {**site.CACHES, "fast": {"BACKEND": OURS, "LOCATION": "pages"}}
    return caches["fast"]


def row(text: str, name: str) -> str:
    """Return the row of a cache in the list."""
    (html_row,) = (html_row for html_row in text.split("<tr>") if f">{name}</a>" in html_row)
    return html_row


def ask(cache: MLCache) -> None:
    """Make six calls: two from the source, one from L2, two from L1, one miss; and one that fails. The next reader of
    the counts flushes them together."""
    cache.counter.due_at = math.inf
    cache.get("k", value("v"))
    cache.get("k")
    cache.get("k")
    cache.lru.flush_all()
    cache.get("k")
    cache.get("l", value(None))
    cache.get("absent")

    def fails() -> None:
        raise SourceError("down")

    with pytest.raises(SourceError):
        cache.get("m", fails)


# --- the list -----------------------------------------------------------------------------------------------------


def test_it_is_in_the_index_of_the_admin(admin_client: Client) -> None:
    text = text_of(admin_client, "/admin/")
    assert f'<a href="{LIST}"' in text
    assert f"{LIST}add/" not in text


def test_migrate_has_made_the_permissions_and_no_table(tmp_path: Path) -> None:
    content_type = ContentType.objects.get_for_model(Cache)
    assert set(content_type.permission_set.values_list("codename", flat=True)) == {
        "view_cache",
        "view_cache_items",
        "delete_cache_item",
        "purge_cache",
    }
    for options in ({}, {"use_base_manager": True}):
        call_command("dumpdata", "resty_cache", output=str(tmp_path / "dump.json"), **options)
    assert list(Cache.objects.all()) == []


def test_the_list_has_the_caches_of_the_settings_of_code_of_django_and_of_other_processes(
    admin_client: Client, site: Any, of_django: Any
) -> None:
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "CACHES": {"products": {}}}
    coded = MLCache("coded", "counts", lru=LRU(9))
    coded.get("k", value(1))
    elsewhere = CacheCounter("elsewhere", shdicts["counts"])
    elsewhere.now.l1 = 7
    run(elsewhere.flush())
    text = text_of(admin_client, LIST)
    for name in ("default", "products", "coded"):
        assert "<td>cache</td>" in row(text, name)
    assert "<td>Django cache</td>" in row(text, "django-cache/pages")
    assert "<td>cache in other processes</td>" in row(text, "elsewhere")
    assert "7 calls in the last hour: L1 100 %" in row(text, "elsewhere")
    page = text_of(admin_client, f"{LIST}elsewhere/change/")
    assert "This process has not created the cache." in plain(page)
    assert 'name="key"' not in page
    assert "has not created" in plain(text_of(admin_client, f"{LIST}elsewhere/change/?key=k"))
    assert "/purge/" not in page


def test_the_list_shows_the_last_hour_by_level(admin_client: Client) -> None:
    ask(mlcaches["default"])
    html_row = row(text_of(admin_client, LIST), "default")
    cells = re.findall(r'<td class="resty-number">([^<]*)</td>', html_row)
    assert cells == ["7", "42.9 %", "28.6 %", "14.3 %", "0 %", "28.6 %", "14.3 %", "14.3 %"]
    assert "7 calls in the last hour: L1 28.6 %, L2 14.3 %, Source 28.6 %, Misses 14.3 %, Errors 14.3 %" in html_row
    assert {*re.findall(r'<rect class="resty-(\w+)"', html_row)} == {"l1", "l2", "l3", "misses", "errors"}


def test_a_cache_that_cannot_be_used_is_a_row_with_the_reason(admin_client: Client, site: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    dicts = {**site.RESTY_DJANGO["SHARED_DICTS"], "away": {"PATH": str(tmp_path / "file")}}
    wrong = {"SHM": "away"}
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "SHARED_DICTS": dicts, "CACHES": {"wrong": wrong}}
    site.CACHES = {**site.CACHES, "fast": {"BACKEND": OURS, "LOCATION": "nowhere"}}
    text = text_of(admin_client, LIST)
    assert "Unavailable" not in row(text, "default")
    for name, why in (("wrong", "PATH"), ("django-cache/nowhere", "LOCATION is")):
        html_row = row(text, name)
        assert "Unavailable:" in html_row
        assert why in html_row
    page = f"{LIST}wrong/change/"
    for query in ("", "?key=x", "?find=x"):
        assert "PATH" in text_of(admin_client, page + query)
    for action, (_, data) in ACTIONS.items():
        reply = admin_client.post(f"{LIST}wrong/{action}/", {**data, "confirmation": "wrong"}, follow=True)
        assert "Not " in plain(reply.content.decode())
    assert logged() == []


def test_a_missing_cache(admin_client: Client) -> None:
    assert admin_client.get(f"{LIST}nowhere/change/").status_code == 302
    assert admin_client.post(f"{LIST}nowhere/purge/", {"confirmation": "nowhere"}).status_code == 302
    assert logged() == []


# --- one cache ----------------------------------------------------------------------------------------------------


def test_the_page_shows_levels_callbacks_and_options(admin_client: Client) -> None:
    ask(mlcaches["default"])
    text = text_of(admin_client, PAGE)
    assert text.count('<figure class="resty-chart">') == 3
    assert text.index('<figure class="resty-chart">') < text.index("<table", text.index("content-main"))
    visible = plain(text)
    (counts,) = re.findall(r"From Never there Expired Invalidated Evicted \d\d:\d\d (\d \d \d \d) ", visible)
    assert sum(map(int, counts.split())) == 3  # L1 may remember keys of other tests
    assert "L1 the memory of the process 2 28.6 % 2 28.6 %" in visible
    assert "Source the callback 2 28.6 % 2 28.6 %" in visible
    assert re.search(r"Last hour 3 1 [\d.]+ ms 3 [\d.]+ ms All 3 1 [\d.]+ ms 3 [\d.]+ ms", visible)
    assert "lmdb:default L2 (default), locks (default), statistics (default) In use – –" in visible
    assert "Hit ratio 42.9 %, lowest 42.9 %" in visible
    for query, caption in (("", "By minute"), ("?period=days", "By hour")):
        rows = plain(text_of(admin_client, f"{PAGE}{query}")).partition(caption)[2]
        assert re.match(
            r" Calls From Calls Hits L1 L2 Stale Source Misses Errors .*?\d\d:\d\d 7 42.9 % 2 1 0 2 1 1 ", rows
        )
    assert "dictionary default (lmdb)" in visible
    assert "ttl 30.0" in visible
    assert "ipc events" in visible


def test_stores_that_are_down(admin_client: Client, site: Any, tmp_path: Path) -> None:
    folder = tmp_path / "away"
    folder.touch()
    dicts = {**site.RESTY_DJANGO["SHARED_DICTS"], "away": {"PATH": str(folder)}}
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "SHARED_DICTS": dicts, "CACHES": {"c": {"SHM": "away"}}}
    cache = mlcaches["c"]
    assert cache.get("k", value("v")) == "v"
    cache.delete("k")
    visible = plain(text_of(admin_client, LIST))
    assert "This process has not been able to use the store “lmdb:away” since " in visible
    assert "2 calls were answered without it" in visible
    visible = plain(text_of(admin_client, f"{LIST}c/change/"))
    assert re.search(r"lmdb:away L2 \(away\), .* Down since .* 2 1 ", visible)
    assert "store “lmdb:away”" not in plain(text_of(admin_client, f"{LIST}default/change/"))
    former = [StoreBreaker("lmdb:away") for _ in range(20)]  # as earlier settings may leave one
    families = {family.name: family for family in overview.families()}
    up = {sample.labels: sample.value for sample in families["resty_cache_store_up"].samples}
    assert up[("lmdb:away",)] == 0
    assert not any(breaker.down for breaker in former)
    assert "lmdb:away" in str(overview.panel())
    folder.unlink()
    until(lambda: not current_outages())
    assert "answered 2 calls without a store" in plain(text_of(admin_client, f"{LIST}c/change/"))


def test_the_settings_of_a_django_cache(admin_client: Client, of_django: Any) -> None:
    of_django.set("k", [1, 2])
    of_django.get("k")
    visible = plain(text_of(admin_client, f"{LIST}django-cache_2Fpages/change/"))
    assert "LOCATION pages (lmdb) LRU_SIZE 1,000 LRU_TTL 1.0" in visible
    assert "L2 the shared dictionary 1 100 %" in visible


def table_of_keys(admin_client: Client, title: str, link: str) -> str:
    """The text of a table on the page, with a hostile key, which only those see who may see items."""
    text = text_of(admin_client, PAGE)
    assert SHOWN in text
    assert "<script>alert" not in text
    assert f'href="?k={link}#items"' in text
    assert title not in text_of(person("view_cache"), PAGE)
    return plain(text).partition(title)[2]


def test_the_slowest_callbacks_need_the_permission_to_view_items(admin_client: Client) -> None:
    counter = mlcaches["default"].counter
    for key, seconds in (("quick", 0.02), ("slow", 3.5), (HOSTILE, 2), ("quick", 0.01)):
        callback_took(counter, key, seconds)
    visible = table_of_keys(admin_client, "Slowest callbacks", "cXVpY2s%3D")
    assert re.search(r"slow 3.5 s .* 1 .*2 s .* 1 quick 20 ms .* 2 ", visible)


def test_the_most_missed_keys_need_the_permission_to_view_items(admin_client: Client) -> None:
    counter = mlcaches["default"].counter
    for key, count in (("seldom", 1), ("often", 30), (HOSTILE, 2)):
        for _ in range(count):
            callback_took(counter, key, 0.02)
    visible = table_of_keys(admin_client, "Keys behind the misses", "b2Z0ZW4%3D")
    assert visible.startswith(" Key Callbacks ▼ often 30 ")
    assert re.search(r" seldom 1 ", visible)


def test_a_slow_key_is_counted_with_its_callback(admin_client: Client) -> None:
    mlcaches["default"].get("asked", value(1))
    mlcaches["default"].refresh("refreshed", value(1))
    visible = plain(text_of(admin_client, PAGE)).partition("Slowest callbacks")[2]
    assert "asked" in visible
    assert "refreshed" in visible


def test_misses_of_a_cache_of_django_have_reasons(admin_client: Client, of_django: Any) -> None:
    counts = all_caches()["django-cache/pages"].counter.now
    before = counts.new, counts.expired, counts.invalidated
    of_django.get(f"never-{time.time()}")
    of_django.set("short", 1, timeout=0.01)
    time.sleep(0.02)
    of_django.get("short")
    of_django.set("deleted", 1)
    of_django.delete("deleted")
    of_django.get("deleted")
    assert tuple(map(int.__sub__, (counts.new, counts.expired, counts.invalidated), before)) == (1, 1, 1)
    metrics = admin_client.get("/metrics").content.decode()
    assert 'resty_cache_misses_total{cache="django-cache/pages",reason="expired"}' in metrics


# --- items --------------------------------------------------------------------------------------------------------


def test_keys_are_listed_by_their_beginning_page_by_page(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "KEYS_PER_PAGE", 3)
    cache = mlcaches["default"]
    for number in range(8):
        cache.set(f"a{number}", "x" * number, ttl=100)
    cache.set("b", 1, ttl=0)
    MLCache("other", lru=LRU(9)).set("a9", 1)
    cache.lru.delete("a1")
    first, last = text_of(admin_client, f"{PAGE}?find=a"), text_of(admin_client, f"{PAGE}?find=a&page=3")
    assert re.findall(r'class="resty-id">(\w+)</code>', first) == ["a0", "a1", "a2"]
    assert re.findall(r'class="resty-id">(\w+)</code>', last) == ["a6", "a7"]
    assert "Page 1 of 3, 8 keys" in first
    assert "Previous" not in first
    assert 'href="?find=a&amp;page=2#items"' in first
    assert 'href="?find=a&amp;page=2#items"' in last
    assert "Next" not in last
    visible = plain(first)
    assert re.search(r"a0 1 min \d+ s L1 of this process, L2 \d+ bytes a1 1 min \d+ s L2 ", visible)
    everything = text_of(admin_client, f"{PAGE}?find=&page=99")
    assert re.findall(r'class="resty-id">(\w+)</code>', everything) == ["a6", "a7", "b"]
    assert "never expires" in everything
    assert "No keys with this prefix." in text_of(admin_client, f"{PAGE}?find=zzz&page=-1")


def test_a_search_examines_a_limited_number_of_keys(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "MAX_EXAMINED_KEYS", 3)
    for number in range(4):
        mlcaches["default"].set(f"a{number}", 1)
    assert "so not all were searched" in text_of(admin_client, f"{PAGE}?find=")


def test_the_page_of_an_item_shows_its_levels(admin_client: Client) -> None:
    cache = mlcaches["default"]
    cache.get("k", lambda: Fresh({"name": "tea", "list": [1, 2]}, 100))
    text = text_of(admin_client, f"{PAGE}?key=k")
    visible = plain(text)
    assert "Type dict" in visible
    assert "Levels L1 of this process, L2 default (lmdb)" in visible
    assert re.search(r"Time to live 1 min \d+ s ", visible)
    assert re.search(r"Stored [\d.]+ m?s ago", visible)
    assert "{&#x27;name&#x27;: &#x27;tea&#x27;, &#x27;list&#x27;: [1, 2]}" in text
    assert "L2 does not contain this key" in text_of(admin_client, f"{PAGE}?key=K")


def test_none_in_a_separate_dictionary(admin_client: Client) -> None:
    cache = MLCache("two", "pages", shm_miss="counts", lru=LRU(9))
    cache.get("nothing", value(None))
    visible = plain(text_of(admin_client, f"{LIST}two/change/?key=nothing"))
    assert "Type None" in visible
    assert "counts (lmdb)" in visible
    assert "nothing" in plain(text_of(admin_client, f"{LIST}two/change/?find=no"))


def test_a_stale_item_and_an_item_of_another_program(admin_client: Client) -> None:
    cache = mlcaches["default"]
    cache.set("k", "old")
    shdicts["default"].flush_all()
    cache.lru.flush_all()
    visible = plain(text_of(admin_client, f"{PAGE}?key=k"))
    assert "Levels L2, stale" in visible
    assert "Time to live has expired" in visible
    shdicts["default"].set("default:foreign", b"\x00<b>")
    shdicts["default"].rpush("default:list", 1)
    visible = plain(text_of(admin_client, f"{PAGE}?key=foreign"))
    assert "Not written by this cache; reading it counts as a miss." in visible
    assert "&lt;b&gt;" in visible
    assert "L2 does not contain this key" in text_of(admin_client, f"{PAGE}?key=list")
    assert "foreign" in text_of(admin_client, f"{PAGE}?find=")


def test_a_serialized_value_is_shown_in_its_stored_form(admin_client: Client) -> None:
    class Never:
        def encode(self, value: Any) -> Any:
            return f"encoded {value}"

        def decode(self, data: Any) -> Any:
            raise AssertionError("the admin runs no code of the site")

    cache = MLCache("special", serializer=Never(), lru=LRU(9))
    cache.set("k", {1, 2})
    visible = plain(text_of(admin_client, f"{LIST}special/change/?key=k"))
    assert "Shown as encoded by the cache&#x27;s serializer. encoded {1, 2}" in visible


class Trap:
    """Records that it was loaded."""

    loaded = 0

    def __reduce__(self) -> Any:
        return (_spring, ())


def _spring() -> None:
    Trap.loaded += 1


def test_items_of_django_and_pickles_that_stay_unloaded(admin_client: Client, of_django: Any) -> None:
    page = f"{LIST}django-cache_2Fpages/change/"
    of_django.set("trap", Trap())
    of_django.set("text", "tea")
    of_django.set("number", 7)
    shdicts["pages"].set("foreign", "x")
    visible = plain(text_of(admin_client, f"{page}?key=:1:trap"))
    assert re.search(r"Type pickle .* A signed pickle of \d+ bytes\. The admin does not load it\.", visible)
    assert "Value tea" in plain(text_of(admin_client, f"{page}?key=:1:text"))
    assert "Value 7" in plain(text_of(admin_client, f"{page}?key=:1:number"))
    assert "Not written by this cache" in text_of(admin_client, f"{page}?key=foreign")
    visible = plain(text_of(admin_client, f"{page}?find=:1:"))
    for key in (":1:trap", ":1:text", ":1:number"):
        assert key in visible
    assert Trap.loaded == 0


def test_long_and_hostile_keys_and_values_are_cut_and_escaped(admin_client: Client) -> None:
    cache = mlcaches["default"]
    cache.set(HOSTILE, HOSTILE + "y" * 10_000)
    cache.set("k" * 2000, 1)
    for url in (f"{PAGE}?find=", PAGE):
        text = text_of(admin_client, url)
        assert "<script>alert" not in text
    (token,) = set(re.findall(r'href="\?k=([^"#]+)#items"', text_of(admin_client, f"{PAGE}?find=<")))
    for url in (f"{PAGE}?k={token}", f"{LIST}default/delete-key/?k={token}"):
        text = text_of(admin_client, url)
        assert SHOWN in text
        assert "<script>alert" not in text
        assert "y" * 5000 not in text
    assert "(too long for a link)" in text_of(admin_client, f"{PAGE}?find=kkk")
    text = admin_client.post(f"{LIST}default/delete-key/?k={token}", {}, follow=True).content.decode()
    assert "<script>alert" not in text
    assert cache.peek(HOSTILE) is None
    assert unquote(token)
    assert "<script>alert" not in text_of(admin_client, f"{LIST}default/history/")


def test_a_cache_with_a_hostile_name(admin_client: Client) -> None:
    cache = MLCache("<script>alert(1)</script>/../%s?x=1&é", lru=LRU(9))
    cache.get("k", value("v"))
    (address,) = re.findall(rf'href="({LIST}[^"]*script[^"]*/change/)"', text_of(admin_client, LIST))
    purge = address.replace("/change/", "/purge/")
    for url in (LIST, address, f"{address}?find=", f"{address}?key=k", purge):
        assert "<script>alert" not in text_of(admin_client, url)
    assert admin_client.post(purge, {"confirmation": cache.name}).status_code == 302
    assert cache.get("k") is None
    assert "<script>alert" not in text_of(admin_client, address.replace("/change/", "/history/"))


# --- doing --------------------------------------------------------------------------------------------------------


def test_delete_a_key_in_all_levels_and_processes(admin_client: Client) -> None:
    cache = mlcaches["default"]
    cache.get("k", value("v"))
    reply = admin_client.post(f"{LIST}default/delete-key/", {"key": "k"}, follow=True)
    assert reply.redirect_chain == [(PAGE, 302)]
    assert 'Deleted the key <code class="resty-id">k</code>.' in reply.content.decode()
    assert cache.get("k") is None
    assert in_journal(shdicts["default"])[-1] == ("mlcache:invalidations:default", "k")
    entry = LogEntry.objects.get()
    assert entry.get_change_message() == "Deleted the key “k”."
    assert entry.object_id == "default"
    assert entry.get_admin_url() == PAGE
    assert "Deleted the key" in text_of(admin_client, f"{LIST}default/history/")


def test_delete_a_key_of_a_cache_of_django(admin_client: Client, of_django: Any) -> None:
    of_django.set("k", "v")
    assert of_django.get("k") == "v"
    admin_client.post(f"{LIST}django-cache_2Fpages/delete-key/", {"key": ":1:k"})
    assert of_django.get("k") is None
    assert logged() == ["Deleted the key “:1:k”."]


@pytest.mark.parametrize("free", [False, True])
def test_a_purge_empties_the_cache(admin_client: Client, free: bool) -> None:
    cache = mlcaches["default"]
    cache.get("k", value("v"))
    data = {"confirmation": "default", **({"free": "on"} if free else {})}
    assert admin_client.post(f"{LIST}default/purge/", data).status_code == 302
    assert cache.get("k") is None
    assert (cache.peek("k", stale=True) is None) is free
    assert logged() == ["Purged the cache and freed its memory." if free else "Purged the cache."]


def test_actions_say_that_they_cannot_be_undone(admin_client: Client) -> None:
    cache = mlcaches["default"]
    keys = {f"k{number}": value("v") for number in range(3)}
    for key, callback in keys.items():
        cache.get(key, callback)
    for action in ("purge", "delete-key", "invalidate-tag"):
        assert "This cannot be undone." in text_of(admin_client, f"{LIST}default/{action}/")
    stored = sum(dictionary.stats().keys or 0 for dictionary in set(cache.dictionaries))
    assert stored >= 3
    assert f"Number of keys: {stored}" in text_of(admin_client, f"{LIST}default/purge/")


def test_purge_a_cache_of_django(admin_client: Client, of_django: Any) -> None:
    of_django.set("k", "v")
    page = f"{LIST}django-cache_2Fpages/purge/"
    assert 'name="free"' not in text_of(admin_client, page)
    assert admin_client.post(page, {"confirmation": "django-cache/pages"}).status_code == 302
    assert of_django.get("k") is None
    assert logged() == ["Purged the cache."]


@pytest.mark.parametrize("typed", ["", "Default", " default", "other"])
def test_a_purge_takes_the_exact_name(admin_client: Client, typed: str) -> None:
    mlcaches["default"].get("k", value("v"))
    assert admin_client.post(f"{LIST}default/purge/", {"confirmation": typed}).status_code == 200
    assert mlcaches["default"].get("k") == "v"
    assert logged() == []


def test_the_page_of_a_purge_lists_what_is_deleted_with_it(admin_client: Client) -> None:
    beside = MLCache("beside", lru=LRU(9))
    alone = MLCache("alone", "pages", shm_locks="counts", lru=LRU(9))
    visible = plain(text_of(admin_client, f"{LIST}default/purge/"))
    assert "everything in the dictionary default (lmdb) for all processes" in visible
    assert "beside (cache)" in visible
    assert "alone (cache)" not in visible
    assert "figures are stored there too" in visible
    visible = plain(text_of(admin_client, f"{LIST}alone/purge/"))
    assert "as well" not in visible
    assert "The figures" not in visible
    assert beside.name != alone.name


def test_a_cache_without_a_channel_cannot_be_changed(admin_client: Client) -> None:
    cache = MLCache("quiet", ipc=None, lru=LRU(9))
    cache.get("k", value("v"))
    for action, data in (("delete-key", {"key": "k"}), ("purge", {"confirmation": "quiet"})):
        reply = admin_client.post(f"{LIST}quiet/{action}/", data)
        assert "needs a channel to other processes" in plain(reply.content.decode())
    assert cache.get("k") == "v"
    assert logged() == []


@pytest.mark.redis
def test_a_cache_in_redis(admin_client: Client, site: Any, valkey_url: str, valkey: Any) -> None:
    site.CACHES = {**site.CACHES, "store": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}}
    dicts = {**site.RESTY_DJANGO["SHARED_DICTS"], "wide": {"ENGINE": "redis", "ALIAS": "store"}}
    site.RESTY_DJANGO = {**site.RESTY_DJANGO, "SHARED_DICTS": dicts, "CACHES": {"wide": {"SHM": "wide"}}}
    page = f"{LIST}wide/change/"
    ask(mlcaches["wide"])
    assert "7 calls in the last hour" in row(text_of(admin_client, LIST), "wide")
    assert "dictionary wide (redis)" in plain(text_of(admin_client, page))
    visible = plain(text_of(admin_client, f"{page}?find="))
    assert re.search(r"k (2\d|30) s L1 of this process, L2 \d+ bytes l [\d.]+ s ", visible)
    assert "Page 1 of 1, 2 keys" in visible
    assert re.search(r"Stored [\d.]+ m?s ago Value v", plain(text_of(admin_client, f"{page}?key=k")))
    admin_client.post(f"{LIST}wide/delete-key/", {"key": "k"})
    assert mlcaches["wide"].get("k") is None
    admin_client.post(f"{LIST}wide/purge/", {"confirmation": "wide", "free": "on"})
    assert mlcaches["wide"].get("l", value("again")) == "again"
    assert logged() == ["Deleted the key “k”.", "Purged the cache and freed its memory."]


# --- who may do what ----------------------------------------------------------------------------------------------


def test_figures_and_items_have_separate_permissions() -> None:
    mlcaches["default"].set("secret-key", "secret-value")
    viewer, reader, blind = (
        person("view_cache"),
        person("view_cache", "view_cache_items"),
        person("view_cache_items"),
    )
    assert viewer.get(LIST).status_code == viewer.get(PAGE).status_code == 200
    assert "Items in L2" not in text_of(viewer, PAGE)
    for query in ("?key=secret-key", "?k=c2VjcmV0LWtleQ==", "?find=secret"):
        assert viewer.get(PAGE + query).status_code == 403
        assert "secret-key" in text_of(reader, PAGE + query)
        assert blind.get(PAGE + query).status_code == 403
    assert "secret-value" in text_of(reader, f"{PAGE}?key=secret-key")
    assert blind.get(LIST).status_code == blind.get(PAGE).status_code == 403
    assert LIST not in text_of(blind, "/admin/")
    assert LIST in text_of(viewer, "/admin/")


def test_tags_are_listed_and_invalidated(admin_client: Client) -> None:
    cache = mlcaches["default"]
    cache.get("k", value("v"), tags=("product:7", HOSTILE))
    assert "Invalidated tags" not in text_of(admin_client, PAGE)
    cache.invalidate_tags(HOSTILE)
    cache.get("k", value("v"), tags=("product:7", HOSTILE))
    text = text_of(admin_client, PAGE)
    assert SHOWN in text
    assert "<script>alert" not in text
    visible = plain(text)
    assert re.search(r"Tag Invalidations Last ▼ Action .* 1 .* Invalidate", visible)
    reply = admin_client.post(f"{LIST}default/invalidate-tag/", {"tag": "product:7"}, follow=True)
    assert "Invalidated the tag product:7 ." in plain(reply.content.decode())
    assert logged() == ["Invalidated the tag “product:7”."]
    assert cache.get("k") is None
    assert "product:7" in plain(text_of(admin_client, PAGE))
    (link,) = re.findall(
        r'/invalidate-tag/\?k=([^"]+)">Invalidate</a></td></tr>\s*</tbody>', text_of(admin_client, PAGE)
    )
    page = text_of(admin_client, f"{LIST}default/invalidate-tag/?k={link}")
    assert "alert(&#x27;x&#x27;)" in page
    assert "<script>alert" not in page
    assert cache.get("k", value("v"), tags=("product:7",)) == "v"
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())
    assert strict.post(f"{LIST}default/invalidate-tag/", {"tag": "product:7"}).status_code == 403
    admin_client.get(f"{LIST}default/invalidate-tag/?k={link}")
    assert cache.get("k") == "v"
    for tag in ("", "x" * 201):
        assert admin_client.post(f"{LIST}default/invalidate-tag/", {"tag": tag}).status_code == 200
    assert len(logged()) == 1


def test_tags_come_by_page(admin_client: Client) -> None:
    for number in range(12):
        mlcaches["default"].invalidate_tags(f"tag-{number:02}")
    first = text_of(admin_client, f"{PAGE}?o-tags=tag")
    assert re.findall(r">(tag-\d+)<", first) == [f"tag-{number:02}" for number in range(8)]
    assert "1 to 8 of 12" in first
    assert 'href="?o-tags=tag&amp;p-tags=2#tags"' in first
    assert "data-resty-every" in first, "it stays fresh"
    assert re.findall(r">(tag-\d+)<", text_of(admin_client, f"{PAGE}?o-tags=tag&p-tags=2")) == [
        f"tag-{number:02}" for number in range(8, 12)
    ]


def test_tags_are_as_secret_as_keys() -> None:
    mlcaches["default"].invalidate_tags("product:7")
    assert "product:7" not in text_of(person("view_cache"), PAGE)
    text = text_of(person("view_cache", "view_cache_items"), PAGE)
    assert "product:7" in text
    assert "/invalidate-tag/" not in text
    for call in ("get", "post"):
        reply = getattr(person("view_cache", "view_cache_items"), call)(f"{LIST}default/invalidate-tag/", {"tag": "x"})
        assert reply.status_code == 403
    text = text_of(person("view_cache", "delete_cache_item"), PAGE)
    assert "product:7" not in text
    assert "/invalidate-tag/" in text
