"""One key is found in all limits, and reset in one of them."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, Limited, SlidingWindow, TokenBucket, limited
from resty_django.limits.admin import key_search
from resty_django.limits.models import LimitOverride
from resty_django.limits.policies import registry
from resty_django.limits.statistics import catalog, published
from resty_django.limits.statistics.reporter import stats
from resty_django.shdict import shdicts
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, logged, make_policy, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

KEY = f"{POLICIES}limits/key/"


@pytest.fixture(autouse=True)
def empty_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits that other tests have declared are not asked."""
    monkeypatch.setattr(catalog, "_limits", {})


def found(client: Client, key: str) -> str:
    reply = client.get(KEY, {"key": key})
    assert reply.status_code == 200
    return reply.content.decode()


def rows(html: str) -> list[str]:
    table = html.partition('aria-label="Limits of the key"')[2].partition("</table>")[0]
    cells = re.findall(r'<tr><th scope="row">.*?</tr>', table, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in cells]


def use(key: str, calls: int, name: str = "sms") -> Any:
    """Declare a function with the limit 1/h and call it; return the name of its series."""

    @limited("1/h", key=lambda: key, name=name)
    def send() -> None: ...

    for _ in range(calls):
        with contextlib.suppress(Limited):
            send()
    return f"function:{name}"


def test_a_key_is_found_in_all_limits(admin_client: Client) -> None:
    make_policy(limit=3)
    make_policy("unused", limit=3)
    policy = registry.get_policy("pay")
    assert policy is not None
    policy.limiter.hit("ip:192.0.2.1")
    use("192.0.2.1", 3)
    use("192.0.2.2", 1, "other")
    before = stats.totals()
    first, second = rows(found(admin_client, "192.0.2.1"))
    assert first.startswith("pay Policy 3 requests per hour")
    assert "ip:192.0.2.1 Add override passed 2" in first
    assert second.startswith("sms Function")
    assert re.search(r"192\.0\.2\.1 refused 0 3[\d,.]+ 2 Reset$", second)
    # A search counts nothing.
    assert rows(found(admin_client, "192.0.2.1"))[0] == first
    assert stats.totals()["function:sms"].all == 3
    assert set(before) <= set(stats.totals())
    assert rows(found(admin_client, "192.0.2.9")) == []
    assert "No limit has a state" in found(admin_client, "192.0.2.9")


def test_a_key_is_reset_in_one_limit(admin_client: Client) -> None:
    use("k", 2)
    use("k", 2, "other")
    (link,) = re.findall(rf'href="({KEY}reset/\?[^"]*other[^"]*)"', found(admin_client, "k"))
    url = link.replace("&amp;", "&")
    assert "is deleted, as if it had never made a request" in admin_client.get(url).content.decode()
    assert [row.split()[0] for row in rows(found(admin_client, "k")) if " k refused " in row] == ["other", "sms"]
    reply = admin_client.post(url, follow=True)
    assert "Reset the key" in reply.content.decode()
    assert [row.split()[0] for row in rows(found(admin_client, "k")) if " k refused " in row] == ["sms"]
    assert logged() == ["Reset the key “k”."]
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.object_repr) == (None, "function:other")
    assert "has no stored state" in admin_client.post(url, follow=True).content.decode()
    assert len(logged()) == 1


def test_a_reset_needs_a_loaded_limit_a_key_and_the_permission(admin_client: Client) -> None:
    series = use("k", 1)
    query = urlencode({"limit": series, "k": "aw=="})
    viewer, operator = person("view_limitpolicy"), person("view_limitpolicy", "reset_key")
    assert "Reset</a>" not in found(viewer, "k")
    assert viewer.post(f"{KEY}reset/?{query}").status_code == 403
    assert person("reset_key").get(KEY).status_code == 403
    assert Client(enforce_csrf_checks=True).post(f"{KEY}reset/?{query}").status_code in (302, 403)
    assert operator.post(f"{KEY}reset/?{query}").status_code == 302
    assert logged() == ["Reset the key “k”."]
    for wrong in ("limit=function:none&k=aw==", f"limit={series}", f"limit={series}&k=%25"):
        assert admin_client.get(f"{KEY}reset/?{wrong}").status_code == 404


def test_hostile_keys_are_shown_as_what_they_are(admin_client: Client) -> None:
    use(HOSTILE, 2)
    html = found(admin_client, HOSTILE)
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    (link,) = re.findall(rf'href="({KEY}reset/\?[^"]*)"', html)
    page = admin_client.get(link.replace("&amp;", "&")).content.decode()
    assert "<b>" not in page
    admin_client.post(link.replace("&amp;", "&"))
    assert "{{x}}" in logged()[-1]


def test_the_number_of_asked_limits_is_bounded(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_search, "MOST_LIMITERS", 2)
    for name in "abc":
        use("k", 1, name)
    html = found(admin_client, "k")
    assert [row.split()[0] for row in rows(html)] == ["a", "b"]
    assert "There are more." in html


def test_a_store_that_is_down_is_reported(admin_client: Client, settings: Any) -> None:
    use("k", 1)
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {"limits": {"PATH": "/proc/nowhere"}}}
    assert "The statistics cannot be read" in found(admin_client, "k")


# --- limits of other processes ---------------------------------------------------------------------------------------


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def called(request: pytest.FixtureRequest, worker: Any, limits_site: dict[str, Any], settings: Any) -> None:
    """A process that has ended has used limits that this one has not loaded, in the same store."""
    caches = None
    if request.param == "redis":
        request.getfixturevalue("valkey")
        url = request.getfixturevalue("valkey_url")
        settings.CACHES = caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
        entry = {"ENGINE": "redis", "ALIAS": "default"}
        dicts = dict.fromkeys(("default", "bans", "events", "limits"), entry)
        settings.RESTY_DJANGO = {**limits_site, "SHARED_DICTS": dicts}
    process = worker("call", caches, key="192.0.2.1")
    process.wait_for(lambda line: line == ["called"])
    assert all("refused by sms: a call of 192.0.2.1" in line for line in process.end().splitlines())


@pytest.mark.usefixtures("called")
def test_states_of_limits_that_only_other_processes_have_loaded(admin_client: Client) -> None:
    html = found(admin_client, "192.0.2.1")
    outcomes = re.findall(
        r'<th scope="row">(\w+)</th>.*?resty-is-(\w+)"></span> \w+</td><td[^>]*>(\d+)', html, re.DOTALL
    )
    assert sorted(outcomes) == [
        ("fixed", "passed", "1"),
        ("leaky", "delayed", "1"),
        ("sliding", "passed", "1"),
        ("slots", "passed", "1"),
        ("sms", "refused", "0"),
    ]
    assert "5 limits were asked" in html
    unknown = html.partition("Limits whose states cannot be read")[2].partition("</p>")[0]
    assert re.findall(r"<code[^>]*>([^<]*)</code>", unknown) == ["job:own"]
    assert rows(found(admin_client, "192.0.2.2")) == []


@pytest.mark.usefixtures("called")
def test_a_key_is_reset_in_a_limit_of_another_process(admin_client: Client) -> None:
    html = found(admin_client, "192.0.2.1")
    for name in ("fixed", "sms"):
        (link,) = re.findall(rf'href="({KEY}reset/\?[^"]*{name}[^"]*)"', html)
        reply = admin_client.post(link.replace("&amp;", "&"), follow=True)
        assert b"Reset the key" in reply.content
    # the function was refused in the last hour, so that its row remains
    remaining = sorted(row.split()[0] for row in rows(found(admin_client, "192.0.2.1")))
    assert remaining == ["leaky", "sliding", "slots", "sms"]
    assert logged()[-1] == "Reset the key “192.0.2.1”."


@pytest.mark.usefixtures("called")
def test_overrides_of_limits_of_other_processes(admin_client: Client, settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"REFRESH": 60.0, "OVERRIDES": "all"}}
    LimitOverride.objects.create(kind="address", key="192.0.2.1", limit="job:fixed", rate="50/h")
    registry.forget_policies()
    by_name = {row.split()[0]: row for row in rows(found(admin_client, "192.0.2.1"))}
    assert "50 requests per hour" in by_name["fixed"]
    assert "50/h" in by_name["fixed"]
    assert "Add override" in by_name["sms"]


@pytest.mark.parametrize("foreign", [b"", b"\xc1", b"\x93\x90\xc3\x91\x95\xa3Foo\xa0\xa0\xa0\x90", "text", 7, [1]])
def test_foreign_data_is_no_limit(admin_client: Client, foreign: Any) -> None:
    use("k", 1)
    stats.flush()
    catalog._limits.clear()
    shdicts["limits"].set("resty:stats:limiters:function:sms", foreign)
    html = found(admin_client, "k")
    assert rows(html) == []
    assert '<code class="resty-id">function:sms</code>.' in html


@pytest.mark.parametrize(
    "limiter",
    [
        LeakyBucket(0.5, 3, clamp=True, idle=None),
        FixedWindow(7, 90),
        SlidingWindow(7, 0.5),
        TokenBucket("10/s", 50, max_wait=math.inf, idle=5),
        TokenBucket("10/m", max_wait=None),
        TokenBucket("10/m", max_wait="site"),
        Concurrency(3, 2, 0.5, lease=None),
    ],
    ids=repr,
)
def test_a_published_limiter_has_the_same_numbers(limiter: Any) -> None:
    limit = catalog.CountedLimit("job:a")
    limiter.prefix = "p:"
    limit.add(limiter, "shop")
    limit.roles, limit.enforced = ("user",), True
    copy = published.unpacked(published.packed(limit))
    assert copy is not None
    (other,) = copy.limiters
    assert (copy.roles, copy.enforced) == (("user",), True)
    assert (type(other), other.prefix, other.numbers, other.describe()) == (
        type(limiter),
        "p:",
        limiter.numbers,
        limiter.describe(),
    )
