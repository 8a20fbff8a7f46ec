"""Live updates in a real browser: they keep what the user does, and show when they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django.admin import overview as page
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from tests.e2e.browser import all_of, until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
]

POLICIES = "/admin/resty_limits/limitpolicy/"
SELECT = """
const range = document.createRange();
range.selectNodeContents(document.querySelector("#result_list tbody tr:has(input) th a"));
document.getSelection().removeAllRanges();
document.getSelection().addRange(range);
"""


@pytest.fixture(autouse=True)
def no_policies_left() -> Iterator[None]:
    yield
    registry.forget_policies()


def policy(name: str, **fields: Any) -> LimitPolicy:
    return LimitPolicy.objects.create(name=name, algorithm="leaky_bucket", rate="10/s", key="ip", **fields)


def test_an_update_keeps_focus_selection_and_check_boxes(browse: Callable[..., Any], live_server: Any) -> None:
    row = policy("pay")
    driver = browse()
    driver.get(f"{live_server.url}{POLICIES}")
    driver.execute_script("document.querySelector('.resty-live-status').dataset.restyEvery = '0.5'")
    driver.find_element("name", "_selected_action").click()
    field = driver.find_element("id", "id_q")
    field.send_keys("typed")
    driver.execute_script(SELECT)
    field_has_focus = "return document.activeElement.id"
    driver.execute_script(
        "document.getElementById('id_q').focus(); window.row = document.querySelector('#result_list tr:has(td input)')"
    )
    driver.execute_script(SELECT)
    focus = driver.execute_script(field_has_focus)
    row.rate = "77/s"
    row.save()
    policy("another")
    until(lambda: any("77" in text for text in all_of(driver, "#result_list tbody tr")))
    until(lambda: len(all_of(driver, "#result_list tbody tr:has(input)")) == 2)
    assert driver.execute_script("return document.getSelection().toString()") == "pay"
    assert driver.execute_script(field_has_focus) == focus
    assert driver.execute_script("return document.getElementById('id_q').value") == "typed"
    assert driver.execute_script("return window.row.isConnected && window.row.querySelector('input').checked")
    assert driver.find_element("css selector", ".resty-live-age").text.startswith("Updated ")


def test_a_page_shows_that_it_is_not_updated(
    browse: Callable[..., Any], live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "REFRESH_SECONDS", 1)
    driver = browse()
    driver.get(f"{live_server.url}/admin/resty_django/overview/")
    until(lambda: all_of(driver, ".resty-live-age")[0].startswith("Updated "))
    driver.delete_all_cookies()
    until(lambda: "you are logged out" in all_of(driver, ".resty-live-age")[0])
    assert driver.find_elements("css selector", "#resty-overview[data-resty-stale]")
