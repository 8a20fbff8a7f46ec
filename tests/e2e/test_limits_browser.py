"""The admin of limits in a real browser, under the demo's strict content security policy, with and without scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resty_django.limits import Decision, Quota, forget_quotas
from resty_django.limits.models import LimitOverride, LimitPolicy, QuotaUsage
from resty_django.limits.policies import registry
from resty_django.limits.statistics import reporter
from tests.e2e.browser import all_of, fits, set_width, until, write
from tests.integration.limits.policy_tools import POLICIES, make_policy

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.usefixtures("limits_site"),
]

NUMBERS = ["rate", "limit", "window", "burst", "interval", "capacity", "quantum", "max_wait", "default_delay", "lease"]


def seen(driver: Any) -> list[str]:
    """Return the names of the number fields that the form shows."""
    return [name for name in NUMBERS if driver.find_element("name", name).is_displayed()]


def choose(driver: Any, name: str, value: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(driver.find_element("name", name)).select_by_value(value)


@pytest.mark.parametrize("scripts", [True, False])
def test_the_form_shows_the_numbers_of_the_algorithm(
    browse: Callable[..., Any], live_server: Any, scripts: bool
) -> None:
    driver = browse(scripts=scripts)
    driver.get(f"{live_server.url}{POLICIES}add/")
    assert seen(driver) == ["rate"]
    driver.find_element("css selector", "summary").click()
    assert seen(driver) == ["rate", "limit", "window"]
    choose(driver, "algorithm", "leaky_bucket")
    assert seen(driver) == ["rate", "burst"]
    write(driver, "rate", "no rate")
    choose(driver, "algorithm", "token_bucket")
    assert seen(driver) == ["rate", "interval", "capacity", "quantum", "max_wait"]
    choose(driver, "algorithm", "concurrency")
    assert seen(driver) == ["limit", "burst", "default_delay", "lease"]
    choose(driver, "algorithm", "fixed_window")
    write(driver, "rate", "")
    write(driver, "name", "pay")
    write(driver, "limit", "5000")
    driver.find_element("name", "_continue").click()
    assert "Fixed window requires this field, or a rate." in all_of(driver, ".errorlist li")
    write(driver, "window", "1h")
    driver.find_element("name", "_continue").click()
    until(lambda: LimitPolicy.objects.exists())
    assert "5,000 requests per hour from the first one on, then refused" in all_of(driver, ".field-in_words .readonly")


@pytest.mark.parametrize("scripts", [True, False])
def test_policies_are_watched_tried_and_switched(browse: Callable[..., Any], live_server: Any, scripts: bool) -> None:
    row = make_policy(algorithm="leaky_bucket", limit=None, window="", rate="2/s", burst=3)
    assert registry.get_policy("pay") is not None
    for _ in range(5):
        reporter.stats.record("pay", "192.0.2.7", Decision(False))
    driver = browse(scripts=scripts)
    driver.get(f"{live_server.url}{POLICIES}")
    driver.find_element("css selector", f".resty-spark[href*='/{row.pk}/']").click()
    until(lambda: "192.0.2.7" in all_of(driver, ".resty-id"))
    bar = driver.find_element("css selector", "rect.resty-refused")
    assert bar.value_of_css_property("fill") not in ("rgb(0, 0, 0)", "none")
    driver.find_element("link text", "Try it").click()
    write(driver, "arrivals", "9")
    driver.find_element("css selector", "input[value=Try]").click()
    until(lambda: "1 passed, 4 delayed, 4 refused" in all_of(driver, "h2"))
    driver.get(f"{live_server.url}{POLICIES}")
    driver.find_element("css selector", f"input.action-select[value='{row.pk}']").click()
    choose(driver, "action", "shadow")
    driver.find_element("css selector", "button[name=index]").click()
    driver.find_element("css selector", ".submit-row input").click()
    until(lambda: LimitPolicy.objects.get().mode == "shadow")
    until(lambda: (policy := registry.get_policy("pay")) is not None and policy.mode == "shadow")  # after the commit


@pytest.mark.parametrize("width", [390, 1280])
def test_tiers_and_exemptions_are_entered_by_line(
    browse: Callable[..., Any], live_server: Any, settings: Any, width: int
) -> None:
    section = {**settings.RESTY_DJANGO["LIMITS"], "TIER": "tests.integration.limits.test_policy_tiers.tier_of"}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": section}
    row = make_policy(path="/shop/*", exempt_paths=f"/{'long' * 40}")
    driver = browse(scripts=False)
    set_width(driver, width)
    driver.get(f"{live_server.url}{POLICIES}{row.pk}/change/")
    for summary in driver.find_elements("css selector", "summary"):
        summary.click()
    write(driver, "tiers", f"pro: 600/m\n{'x' * 60} 4/h")
    write(driver, "exempt_networks", "10.0.0.0/8\n2001:db8::/32")
    driver.find_element("name", "_continue").click()
    until(lambda: any("Line 2, “xxx" in text for text in all_of(driver, ".field-tiers .errorlist li")))
    assert fits(driver)
    write(driver, "tiers", f"pro: 600/m\n{'x' * 60}: none")
    driver.find_element("name", "_continue").click()
    until(lambda: LimitPolicy.objects.get().tiers == f"pro: 600/m\n{'x' * 60}: none")
    assert LimitPolicy.objects.get().exempt_networks == "10.0.0.0/8\n2001:db8::/32"
    assert fits(driver)
    driver.get(f"{live_server.url}{POLICIES}")
    listed = driver.find_element("css selector", "#result_list").text
    assert "pro: 600 requests per minute" in listed
    assert "not network 10.0.0.0/8" in listed
    assert fits(driver)
    driver.get(f"{live_server.url}{POLICIES}{row.pk}/change/")
    choose(driver, "algorithm", "concurrency")
    assert not driver.find_element("name", "tiers").is_displayed()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_pages_of_all_limits_fit_the_window(browse: Callable[..., Any], live_server: Any, width: int) -> None:
    series = f"function:shop.services.{'x' * 80}"
    make_policy()
    for number in range(40):
        reporter.stats.record(series, f"2001:db8:{number:x}::/64|{'k' * 150}", Decision(False))
    driver = browse(scripts=True)
    set_width(driver, width)
    for page in ("", "limits/key/?key=2001:db8:7::/64", f"limits/figures/?limit={series}"):
        driver.get(f"{live_server.url}{POLICIES}{page}")
        assert "shop.services" in driver.find_element("css selector", "#content").text
        assert fits(driver), page
    assert all_of(driver, ".resty-axes text")


@pytest.mark.parametrize("width", [390, 1280])
def test_an_override_is_added_from_the_page_of_a_key(browse: Callable[..., Any], live_server: Any, width: int) -> None:
    make_policy(limit=3, key="ip")
    policy = registry.get_policy("pay")
    assert policy is not None
    policy.limiter.hit("192.0.2.7")
    driver = browse(scripts=width == 1280)
    set_width(driver, width)
    driver.get(f"{live_server.url}{POLICIES}limits/key/?key=192.0.2.7")
    driver.find_element("link text", "Add override").click()
    until(lambda: driver.find_element("name", "key").get_attribute("value") == "192.0.2.7")
    assert driver.find_element("name", "limit").get_attribute("value") == "pay"
    assert fits(driver)
    write(driver, "rate", "1.5/s")
    driver.find_element("name", "_save").click()
    until(lambda: any("is not a whole number" in text for text in all_of(driver, ".field-rate .errorlist li")))
    write(driver, "rate", "blocked")
    write(driver, "reason", "r" * 200)
    driver.find_element("name", "_save").click()
    until(lambda: LimitOverride.objects.exists())
    LimitOverride.objects.create(kind="key", key="k" * 200, limit="l" * 150, rate="none")
    driver.get(f"{live_server.url}/admin/resty_limits/limitoverride/")
    assert "in force" in all_of(driver, ".field-state")
    assert fits(driver)
    driver.get(f"{live_server.url}{POLICIES}limits/key/?key=192.0.2.7")
    assert "192.0.2.7 blocked refused 0 never" in driver.find_element("css selector", "#content").text
    assert fits(driver)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_pages_of_quotas_fit_the_window(browse: Callable[..., Any], live_server: Any, width: int) -> None:
    forget_quotas()
    exports = Quota("x" * 64, 1000, per="month")
    for number in range(3):
        exports.use(f"{number}{'k' * 190}")
    row = QuotaUsage.objects.earliest("pk")
    driver = browse(scripts=True)
    set_width(driver, width)
    pages = [f"{row.pk}/change/", f"{row.pk}/grant/", f"{row.pk}/reset/", "grant/", ""]
    for page in pages:
        driver.get(f"{live_server.url}/admin/resty_limits/quotausage/{page}")
        assert fits(driver), page
    driver.get(f"{live_server.url}/admin/resty_limits/quotausage/{row.pk}/change/")
    driver.find_element("link text", "Grant units").click()
    write(driver, "units", "-5")
    write(driver, "reason", "mistake")
    driver.find_element("css selector", ".submit-row input").click()
    until(lambda: "Granted -5 units" in "".join(all_of(driver, ".messagelist li")))
    forget_quotas()
    assert QuotaUsage.objects.get(pk=row.pk).granted == -5
