"""Keyboard shortcuts of lists, in a real browser under the demo's strict content security policy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from resty_django.qless import Client
from tests.e2e.browser import OpenPage
from tests.integration.ids.admin_tools import make_counter, make_rule
from tests.integration.qless.admin.tools import failed, fill, path

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
]


ROW_INDEX = """
[...document.querySelectorAll(".resty-list tbody tr, #result_list tbody tr")].indexOf(
  document.activeElement.closest("tr"))
"""


def row_index(tab: Any) -> int:
    """Return the index of the row that has the focus; -1: none."""
    return int(tab.evaluate(ROW_INDEX))


def test_jobs_are_selected_and_opened(open_page: OpenPage, jobs_site: Client) -> None:
    fill(jobs_site)
    for number in range(3):
        failed(jobs_site, f"lost-{number}")
    tab = open_page()
    tab.goto(f"{path('job')}?state=failed")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    assert row_index(tab) == 1
    tab.keyboard.press("k")
    assert row_index(tab) == 0
    tab.keyboard.press("k")
    assert row_index(tab) == 0
    tab.keyboard.press("j")
    tab.keyboard.press("x")
    assert [box.is_checked() for box in tab.locator("[name=pick]").all()] == [False, True, False, False]
    tab.keyboard.press("x")
    assert tab.locator("[name=pick]:checked").count() == 0
    jid = tab.locator("tbody tr").nth(1).locator("th a").get_attribute("title")
    tab.keyboard.press("Enter")
    tab.wait_for_url(re.compile(re.escape(path("job", jid))))


def test_the_search_takes_keys_as_text(open_page: OpenPage, jobs_site: Client) -> None:
    fill(jobs_site)
    tab = open_page()
    tab.goto(path("job"))
    tab.keyboard.press("/")
    tab.keyboard.type("jk?x/")
    assert tab.locator("#resty-find").input_value() == "jk?x/"
    assert tab.locator("dialog.resty-keys-help").is_hidden()


def test_the_help_turns_the_shortcuts_off(open_page: OpenPage, jobs_site: Client) -> None:
    fill(jobs_site)
    tab = open_page()
    tab.goto(path("job"))
    tab.keyboard.press("?")
    shortcuts = tab.get_by_role("dialog", name="Keyboard shortcuts")
    shortcuts.wait_for()
    assert "previous row" in shortcuts.inner_text()
    assert open_page.violations(tab) == []
    tab.keyboard.press("j")
    assert row_index(tab) == -1
    shortcuts.get_by_label("Shortcuts are on").uncheck()
    shortcuts.get_by_role("button", name="Close").click()
    tab.reload()
    tab.keyboard.press("j")
    assert row_index(tab) == -1
    tab.get_by_role("button", name="Keyboard shortcuts").click()
    shortcuts.get_by_label("Shortcuts are on").check()
    tab.keyboard.press("Escape")
    shortcuts.wait_for(state="hidden")
    tab.locator("h1").click()
    tab.keyboard.press("j")
    assert row_index(tab) == 0


def test_djangos_lists_have_them_too(open_page: OpenPage, limits_site: None) -> None:
    rule = make_rule()
    for app in ("shop", "kiosk"):
        make_counter(rule, app=app)
    tab = open_page()
    tab.goto("/admin/resty_ids/idcounter/")
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    assert row_index(tab) == 1
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "searchbar"


def test_without_scripts_there_is_no_button(open_page: OpenPage, jobs_site: Client) -> None:
    tab = open_page(scripts=False)
    tab.goto(path("job"))
    assert tab.locator(".resty-keys-button").is_hidden()
