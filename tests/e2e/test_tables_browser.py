"""Tables in a real browser: a click on a head sorts, and live updates keep order and filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resty_django.qless import Client
from tests.e2e.browser import all_of, until
from tests.integration.qless.admin.tools import path

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
]


def test_updates_keep_the_order_and_the_filter(browse: Callable[..., Any], live_server: Any, jobs_site: Client) -> None:
    for name, count in (("mail-a", 1), ("mail-b", 2), ("pdf", 3)):
        for _number in range(count):
            jobs_site.queues[name].put("shop.jobs.Send", {})
    driver = browse()
    driver.get(f"{live_server.url}{path('queue')}?name=mail")
    names = "#resty-live-list tbody th"
    driver.find_element("link text", "WAITING").click()
    until(lambda: all_of(driver, names) == ["mail-b", "mail-a"])
    assert "name=mail" in driver.current_url
    assert driver.find_element("css selector", "[aria-sort=descending]").text.startswith("WAITING")
    driver.execute_script("document.querySelector('#resty-live-list').dataset.restyLive = '0.5'")
    for _number in range(3):
        jobs_site.queues["mail-a"].put("shop.jobs.Send", {})
    jobs_site.queues["mail-c"].put("shop.jobs.Send", {})
    until(lambda: all_of(driver, names) == ["mail-a", "mail-b", "mail-c"])
