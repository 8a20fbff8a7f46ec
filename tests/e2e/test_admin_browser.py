"""The admin of the ID service in a real browser, under the demo's strict content security policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from resty_django import ids
from resty_django.ids.models import IdCounter, IdRule
from tests.e2e.browser import all_of, until, write
from tests.integration.ids.admin_tools import RULES, make_counter, make_rule

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
]


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    ids.stop()


def first(driver: Any) -> str:
    """Return the first ID of the preview."""
    return "".join(all_of(driver, ".resty-ids li")[:1])


def test_the_preview_follows_the_typing(browse: Callable[..., Any], live_server: Any) -> None:
    rule = make_rule()
    counter = make_counter(rule, bound=100)
    driver = browse()
    driver.get(f"{live_server.url}{RULES}{rule.pk}/change/")
    assert len(all_of(driver, "#resty-preview-result .resty-ids li")) == 5
    assert not driver.find_element("name", "_preview").is_displayed()
    write(driver, "source", "Z{now:%y%m%d}{counter:06d}")
    until(lambda: first(driver).startswith("Z"))
    write(driver, "source", "Z{now:%y%m%d}{count:06d}")
    until(lambda: all_of(driver, ".resty-place mark") == ["{"])
    write(driver, "source", "{app}<b>{now:%y%m%d}{counter:06d}")
    write(driver, "sample-app", "kiosk")
    until(lambda: first(driver).startswith("kiosk<b>"))
    driver.find_element("css selector", f'[name="sample-counter"] option[value="{counter.pk}"]').click()
    until(lambda: first(driver).endswith("000100"))
    assert "no new ID can equal an earlier one" in driver.find_element("id", "resty-preview-result").text
    assert IdRule.objects.get().source == rule.source
    assert IdCounter.objects.get().bound == 100


def test_a_rule_is_made_and_issues_in_the_browser(browse: Callable[..., Any], live_server: Any) -> None:
    driver = browse()
    driver.get(f"{live_server.url}{RULES}add/")
    write(driver, "name", "ticket")
    write(driver, "source", "T{counter:06d}")
    until(lambda: first(driver) == "T000000")
    driver.find_element("name", "_continue").click()
    driver.find_element("css selector", '.object-tools a[href$="/issue/"]').click()
    write(driver, "app", "shop")
    driver.find_element("css selector", ".resty-action [type=submit]").click()
    until(lambda: all_of(driver, ".messagelist .resty-id") == ["T000000"])
    driver.find_element("css selector", '.object-tools a[href*="/idcounter/"]').click()
    until(lambda: "shop" in all_of(driver, "#result_list .field-app"))


def test_the_form_works_without_scripts(browse: Callable[..., Any], live_server: Any) -> None:
    rule = make_rule()
    driver = browse(scripts=False)
    driver.get(f"{live_server.url}{RULES}{rule.pk}/change/")
    write(driver, "source", "Z{now:%y%m%d}{counter:06d}")
    driver.find_element("name", "_preview").click()
    until(lambda: first(driver).startswith("Z"))
    assert IdRule.objects.get().source == rule.source
    driver.find_element("name", "_save").click()
    until(lambda: all_of(driver, ".messagelist .success"))
    assert IdRule.objects.get().source.startswith("Z")
