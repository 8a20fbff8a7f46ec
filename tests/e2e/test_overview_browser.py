"""The overview in a real browser, under the demo's strict content security policy, with and without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resty_django.admin import overview as page
from resty_django.limits import Decision
from resty_django.limits.statistics import reporter
from tests.e2e.browser import all_of, fits, until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
]

OVERVIEW = "/admin/resty_django/overview/"
PASSED = '[aria-labelledby="resty-tile-limits"] .resty-numbers div:first-child dd'


def passed(driver: Any) -> int:
    """Return the number of passed requests in the tile of limits."""
    return int(all_of(driver, PASSED)[0].replace(",", ""))


def test_the_overview_follows_events_until_it_is_stopped(
    browse: Callable[..., Any], live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "REFRESH_SECONDS", 1)
    reporter.stats.record("browser", "key", Decision(True))
    driver = browse()
    driver.get(f"{live_server.url}{OVERVIEW}")
    before = passed(driver)
    driver.execute_script("window.stays = true")
    reporter.stats.record("browser", "key", Decision(True))
    until(lambda: passed(driver) == before + 1)
    button = driver.find_element("css selector", "button.resty-live")
    assert button.text == "Stop live updates"
    button.click()
    assert button.text == "Start live updates"
    assert driver.execute_script("return window.stays")
    assert driver.find_element("link text", "Limits").get_attribute("href").endswith("/admin/resty_limits/limitpolicy/")


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("address", [OVERVIEW, "/admin/"])
def test_the_overview_works_with_and_without_scripts(
    browse: Callable[..., Any], live_server: Any, scripts: bool, address: str
) -> None:
    reporter.stats.record("browser", "key", Decision(True))
    driver = browse(scripts=scripts)
    driver.get(f"{live_server.url}{address}")
    assert {"IDs", "Limits", "Caches", "Jobs"} <= set(all_of(driver, "#resty-overview :is(h2, h3)"))
    assert passed(driver) > 0
    if not scripts:
        driver.implicitly_wait(0)  # for missing elements
    assert bool(all_of(driver, "button.resty-live")) == scripts
    if address == OVERVIEW:
        bar = driver.find_element("css selector", "rect.resty-bar")
        assert bar.value_of_css_property("fill") not in ("rgb(0, 0, 0)", "none")
    if scripts:
        for width in (1400, 900, 500):
            driver.set_window_size(width, 1000)
            assert fits(driver), width
