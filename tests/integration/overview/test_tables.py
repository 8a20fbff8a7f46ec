"""Each table of the admin pages is sorted and filtered by its URL, and links of its heads lead to URLs that work."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import pytest
from django.test import Client as Browser

from resty_django.cache import mlcaches
from resty_django.limits import Decision
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.statistics.reporter import stats
from resty_django.qless.clients.default import default_client
from tests.e2e.layout import GROUP, KEY, POLICY, QUEUE, fill_site
from tests.integration.cache.tools import callback_took
from tests.integration.qless.admin.tools import path, report

pytestmark = [pytest.mark.django_db, pytest.mark.redis, pytest.mark.timeout(400), pytest.mark.slow]

KEY_PAGE: Final = f"/admin/resty_limits/limitpolicy/limits/key/?{urlencode({'key': KEY})}"


@dataclass(frozen=True)
class Case:
    """A table: its URL, the parameter of its order, and the columns that its heads sort by."""

    url: str
    columns: str
    parameter: str = "o"


CASES: Final = {
    "dictionaries": Case("/admin/resty_django/shareddictionary/", "name engine capacity free keys forcible"),
    "caches": Case("/admin/resty_cache/cache/", "name kind calls hits l1 l2 stale l3 misses errors"),
    "a cache: misses": Case("/admin/resty_cache/cache/pages/change/", "key callbacks", "o-missed"),
    "a cache: slow": Case("/admin/resty_cache/cache/pages/change/", "key longest when callbacks", "o-slow"),
    "a cache: stores": Case("/admin/resty_cache/cache/pages/change/", "store uses status calls waiting", "o-stores"),
    "a cache: tags": Case("/admin/resty_cache/cache/pages/change/", "tag invalidations last", "o-tags"),
    "a cache: items": Case("/admin/resty_cache/cache/pages/change/?find=", "key"),
    "limits": Case("/admin/resty_limits/limitpolicy/", "name kind rate passed delayed refused shadowed"),
    "bans": Case("/admin/resty_limits/keyban/", "key limit since until number reason"),
    "a key: limits": Case(KEY_PAGE, "limit kind rate key outcome remaining retry_after"),
    "a key: overrides": Case(KEY_PAGE, "limit kind key rate from until reason", "o-overrides"),
    "a key: bans": Case(KEY_PAGE, "limit key until number reason", "o-bans"),
    "a key: quotas": Case(KEY_PAGE, "quota units key used limit remaining resets", "o-quotas"),
    "a key: refusals": Case(KEY_PAGE, "time limit kind key request outcome", "o-refusals"),
    "queues": Case(path("queue"), "name running waiting scheduled stalled depends recurring failed latency hour"),
    "jobs": Case(path("job"), "job klass state queue priority changed"),
    "failed jobs": Case(f"{path('job')}?state=failed", "job klass state queue priority changed"),
    "a queue": Case(f"{path('queue', QUEUE)}?tab=waiting", "job klass state queue priority changed"),
    "a failure group": Case(path("failuregroup", GROUP), "job klass state queue priority changed"),
    "failure groups": Case(path("failuregroup"), "group count first last"),
    "groups": Case(path("jobgroup"), "created"),
    "a group": Case(path("jobgroup", "import-7"), "job klass state queue priority changed"),
    "a group: callbacks": Case(path("jobgroup", "import-7"), "end klass queue job state", "o-callbacks"),
    "classes": Case(path("jobclass"), "klass completed failed waited_p50 waited_p95 ran_p50 ran_p95"),
    "stuck jobs": Case("/admin/resty_qless/job/stuck/", "job klass queue reason"),
    "workers": Case(path("worker"), "name state process version slots jobs stalled longest uptime seen"),
    "a worker": Case(path("worker", "worker-1"), "job klass queue running usual lease"),
    "tags": Case(path("tag"), "name count"),
    "recurring": Case(path("recurringjob"), "jid klass queue interval next count by"),
    "options": Case(path("option"), "option value default"),
}


@pytest.fixture
def site(
    limits_site: dict[str, Any], settings: Any, valkey: Any, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Fill all apps of a site."""
    settings.RESTY_DJANGO = {
        **limits_site,
        "QLESS": {"URL": valkey_url, "WORKER_NAME": "worker-1"},
        "CACHES": {"pages": {}},
    }
    refresh, main = registry.refresh_policies, threading.main_thread()
    # The background thread, which may be due since an earlier test, does not see the rows of the test's transaction.
    monkeypatch.setattr(registry, "refresh_policies", lambda: threading.current_thread() is main and refresh())
    client = default_client()
    fill_site(client)
    report(client, "worker-1")
    cache = mlcaches["pages"]
    for key, seconds in (("a", 0.5), ("b", 0.25), ("b", 0.25)):
        callback_took(cache.counter, key, seconds)
        cache.invalidate_tags(f"tag:{key}")
    return client


def address(case: Case, order: str, **query: str) -> str:
    base, _separator, parameters = case.url.partition("?")
    return (
        f"{base}?{urlencode({**dict(parse_qsl(parameters, keep_blank_values=True)), case.parameter: order, **query})}"
    )


def sort_links(text: str, case: Case, order: str = "") -> dict[str, str]:
    """Return the columns that the heads of a table link to, with the direction of the current order.

    The heads of other tables of the page keep the parameter as it is.
    """
    for head in re.findall(r"<thead>.*?</thead>", text, re.S):
        links = {}
        for attributes, url in re.findall(r'<th scope="col"([^>]*)><a href="\?([^"]*)"', head):
            value = dict(parse_qsl(unescape(url).partition("#")[0])).get(case.parameter, "")
            mark = re.search(r'aria-sort="(\w+)"', attributes)
            links[value] = mark[1] if mark else ""
        if set(links) - {order, ""}:
            return {value.removeprefix("-"): mark for value, mark in links.items()}
    return {}


def problems_of(case: Case, browser: Browser) -> Iterator[str]:
    """Yield what is wrong with a table: sorted by every other column in ascending order, by the rest in descending."""
    for number, key in enumerate(case.columns.split()):
        order, direction = (f"-{key}", "descending") if number % 2 else (key, "ascending")
        reply = browser.get(address(case, order))
        links = sort_links(reply.content.decode(), case, order) if reply.status_code == 200 else {}
        if {column: mark for column, mark in links.items() if mark} != {key: direction}:
            yield f"{address(case, order)}: {reply.status_code}, {links}"


def test_each_table_is_sorted_by_each_of_its_columns(site: Any, admin_client: Browser) -> None:
    problems = [f"{name}: {problem}" for name, case in CASES.items() for problem in problems_of(case, admin_client)]
    assert not problems, "\n".join(problems)


def test_heads_link_to_all_columns_of_a_table(site: Any, admin_client: Browser) -> None:
    for name, case in CASES.items():
        links = sort_links(admin_client.get(case.url).content.decode(), case)
        columns = set(case.columns.split())
        if case.columns.startswith("job klass state"):  # what is the same in all rows of jobs stands above them
            assert {"job", "changed"} <= set(links) <= columns | {"ran"}, name
        else:
            assert set(links) == columns, name


def test_unknown_columns_are_ignored(site: Any, admin_client: Browser) -> None:
    for name, case in CASES.items():
        for order in ("o\x00", "--__class__", '"><script>'):
            reply = admin_client.get(address(case, order))
            assert reply.status_code == 200, (name, order)
            assert '"><script>' not in reply.content.decode(), name


FILTERED: Final = {
    "/admin/resty_django/shareddictionary/": "find",
    "/admin/resty_cache/cache/": "find",
    "/admin/resty_limits/keyban/": "find",
    "/admin/resty_limits/limitpolicy/": "q",
    path("queue"): "name",
    path("failuregroup"): "name",
    path("jobclass"): "name",
    path("worker"): "name",
    path("tag"): "name",
    path("recurringjob"): "name",
    path("option"): "name",
}


def rows(text: str) -> list[str]:
    """Return the texts of the rows of the first table of a list."""
    text = text.partition("<section>")[0]
    body = re.search(r'<table (?:id="result_list"|class="resty-list"|class="resty-all-limits")>.*?</table>', text, re.S)
    found = re.findall(r"<tr>(.*?)</tr>", body[0].partition("<tbody>")[2], re.S) if body else []
    return [" ".join(unescape(re.sub(r"<wbr>", "", re.sub(r"<(?!wbr)[^>]+>", " ", row))).split()) for row in found]


def test_lists_are_filtered_by_a_text(site: Any, admin_client: Browser) -> None:
    for url, parameter in FILTERED.items():
        all_rows = rows(admin_client.get(url).content.decode())
        assert all_rows, url
        word = max(re.findall(r"[\w-]+", all_rows[0])[:3], key=len)
        matching = rows(admin_client.get(f"{url}?{parameter}={word.upper()}").content.decode())
        assert matching, (url, word)
        assert len(matching) <= len(all_rows)
        assert all(word.casefold() in row.casefold() for row in matching), (url, word, matching)
        assert rows(admin_client.get(f"{url}?{parameter}=no-such-text").content.decode()) == [], url


def test_the_most_refused_keys_are_sorted(site: Any, admin_client: Browser) -> None:
    for key, count in (("often", 3), ("seldom", 1)):
        for _number in range(count):
            stats.record(POLICY, key, Decision(False))
    url = f"/admin/resty_limits/limitpolicy/{LimitPolicy.objects.get(name=POLICY).pk}/figures/"
    for order, keys in (("key", ["often", "seldom"]), ("-key", ["seldom", "often"]), ("-refused", ["often", "seldom"])):
        text = admin_client.get(f"{url}?o-keys={order}").content.decode()
        assert re.findall(r">(often|seldom)</code>", text) == keys


def test_a_filter_and_an_order_keep_each_other(site: Any, admin_client: Browser) -> None:
    text = admin_client.get("/admin/resty_limits/keyban/?find=invoices&o=-until").content.decode()
    assert '<input type="hidden" name="o" value="-until">' in text
    assert 'href="?find=invoices&amp;o=until"' in text
    text = admin_client.get(f"{path('queue')}?name=customer&o=-waiting").content.decode()
    assert '<input type="hidden" name="o" value="-waiting">' in text
    assert 'href="?name=customer&amp;o=waiting"' in text
