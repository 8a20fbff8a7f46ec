"""The demo's page of parts in a real browser: at 390 px, with and without scripts, under its strict policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from selenium.common.exceptions import WebDriverException

from project.shop import everywhere, parts
from resty_django.ids import stop
from tests.e2e.browser import fits, set_width, until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
]


@pytest.fixture(autouse=True)
def _demo_data() -> Iterator[None]:
    stop()
    call_command("demo_data", verbosity=0)
    yield
    stop()


def effect(driver: Any, part: str) -> str:
    try:
        return str(driver.find_element("id", f"effect-{part}").text)
    except WebDriverException:  # the next page has just replaced the element
        return ""


@pytest.mark.parametrize("scripts", [True, False])
def test_effects_appear_next_to_their_buttons_on_a_phone(
    browse: Callable[..., Any], live_server: Any, scripts: bool
) -> None:
    driver = browse(scripts=scripts)
    set_width(driver, 390)
    driver.get(f"{live_server.url}/orders/")
    driver.find_element("link text", "Try each part").click()
    for action, part, text in (("ids", "ids", "O2"), ("limits", "limits", "429"), ("forget", "cache", "is deleted")):
        driver.find_element("css selector", f'form[action="/parts/{action}/"] button').click()
        until(lambda part=part, text=text: text in effect(driver, part))
        assert driver.current_url.endswith(f"/parts/#{part}")
    if scripts:
        assert fits(driver)


def test_replies_that_arrive_later_appear_without_a_reload(
    browse: Callable[..., Any], live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr(parts, "wait", requests.append)
    driver = browse()
    driver.get(f"{live_server.url}/parts/")
    driver.find_element("css selector", 'form[action="/parts/greet/"] button').click()
    until(lambda: "No process has replied yet." in effect(driver, "events"))
    driver.execute_script("window.stays = true")
    everywhere.run({"action": "greet", "request": requests[0]}, "run", "demo", 1)
    until(lambda: "web site" in effect(driver, "events"))
    assert driver.execute_script("return window.stays")
