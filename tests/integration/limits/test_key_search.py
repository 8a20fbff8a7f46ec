"""One key is found in all limits, and reset in one of them."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from resty_django.limits import Limited, limited
from resty_django.limits.admin import key_search
from resty_django.limits.statistics.reporter import stats
from tests.integration.limits.policy_tools import POLICIES, key_page, make_policy, person, policy_of
from tests.staff import logged

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site", "undeclared")]

KEY = f"{POLICIES}limits/key/"


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
    policy = policy_of()
    policy.limiter.hit("ip:192.0.2.1")
    use("192.0.2.1", 3)
    use("192.0.2.2", 1, "other")
    before = stats.totals()
    first, second = rows(key_page(admin_client, "192.0.2.1"))
    assert first.startswith("pay Policy 3 requests per hour")
    assert "ip:192.0.2.1 Add override passed 2" in first
    assert second.startswith("sms Function")
    assert re.search(r"192\.0\.2\.1 refused 0 3[\d,.]+ 2 Reset$", second)
    # A search counts nothing.
    assert rows(key_page(admin_client, "192.0.2.1"))[0] == first
    assert stats.totals()["function:sms"].all == 3
    assert set(before) <= set(stats.totals())
    assert rows(key_page(admin_client, "192.0.2.9")) == []
    assert "No limit has a state" in key_page(admin_client, "192.0.2.9")


def test_a_key_is_reset_in_one_limit(admin_client: Client) -> None:
    use("k", 2)
    use("k", 2, "other")
    (link,) = re.findall(rf'href="({KEY}reset/\?[^"]*other[^"]*)"', key_page(admin_client, "k"))
    url = link.replace("&amp;", "&")
    assert "is deleted, as if it had never made a request" in admin_client.get(url).content.decode()
    assert [row.split()[0] for row in rows(key_page(admin_client, "k")) if " k refused " in row] == ["other", "sms"]
    reply = admin_client.post(url, follow=True)
    assert "Reset the key" in reply.content.decode()
    assert [row.split()[0] for row in rows(key_page(admin_client, "k")) if " k refused " in row] == ["sms"]
    assert logged() == ["Reset the key “k”."]
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.object_repr) == (None, "function:other")
    assert "has no stored state" in admin_client.post(url, follow=True).content.decode()
    assert len(logged()) == 1


def test_a_reset_needs_a_loaded_limit_and_a_key(admin_client: Client) -> None:
    series = use("k", 1)
    assert "Reset</a>" not in key_page(person("view_limitpolicy"), "k")
    for wrong in ("limit=function:none&k=aw==", f"limit={series}", f"limit={series}&k=%25"):
        assert admin_client.get(f"{KEY}reset/?{wrong}").status_code == 404


def test_the_number_of_asked_limits_is_bounded(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_search, "MAX_LIMITERS", 2)
    for name in "abc":
        use("k", 1, name)
    html = key_page(admin_client, "k")
    assert [row.split()[0] for row in rows(html)] == ["a", "b"]
    assert "There are more." in html
