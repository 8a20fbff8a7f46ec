"""The layout of the admin's pages with long names: nothing overflows, is cut off or is hard to see."""

from __future__ import annotations

from typing import Any, Final

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.txid import txid
from tests.e2e.browser import OpenPage
from tests.e2e.layout import SEEDS, our_pages, page_problems, template_names
from tests.integration.qless.admin.tools import path

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(600)]

PARTS: Final = 6
"""Parts of the soak test of all pages, so that one that is ended early has checked some of them."""

NOT_LINKED: Final = {
    "admin/resty_qless/down.html",
    "admin/resty_qless/missing.html",
    "admin/resty_limits/limitpolicy/mode.html",
}
"""Templates of pages that no link leads to: what a form returns, and a site without a server or a package."""


def layout_problems(tab: Any, url: str) -> list[str]:
    """Open a page in light, and return what is wrong with its layout."""
    tab.emulate_media(color_scheme="light")
    tab.goto(url)
    return page_problems(tab)


def accessibility_problems(open_page: OpenPage, tab: Any) -> list[str]:
    """Return the violations of an open page: of all rules, and of the contrast in dark."""
    light = [f"{tab.url} violates {violation}" for violation in open_page.violations(tab)]
    tab.emulate_media(color_scheme="dark")
    contrast = open_page.violations(tab, runOnly=["color-contrast"])
    return [*light, *(f"{tab.url} in dark violates {violation}" for violation in contrast)]


@pytest.mark.browser
def test_a_page_of_each_view_fits_and_of_each_template_is_accessible(
    open_page: OpenPage, admin_client: Browser, long_names: Client
) -> None:
    pages = {(page.view, page.templates): page for page in reversed(our_pages(admin_client, per_view=2))}
    tab, problems, checked = open_page(), [], set[str]()
    for page in pages.values():
        problems += layout_problems(tab, page.url)
        if not page.templates <= checked:
            problems += accessibility_problems(open_page, tab)
            checked |= page.templates
    assert problems == [], "\n".join(problems)
    assert template_names() - checked == NOT_LINKED


@pytest.mark.browser
def test_pages_fit_from_right_to_left(open_page: OpenPage, long_names: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE = "ar"
    tab, problems = open_page(), []
    for url in SEEDS:
        problems += layout_problems(tab, url)
        assert tab.evaluate("getComputedStyle(document.documentElement).direction") == "rtl"
    assert problems == [], "\n".join(problems)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_pages_fit_and_are_accessible(
    part: int, open_page: OpenPage, admin_client: Browser, long_names: Client
) -> None:
    tab, problems = open_page(), []
    for page in our_pages(admin_client, per_view=50)[part::PARTS]:
        problems += layout_problems(tab, page.url)
        problems += accessibility_problems(open_page, tab)
    assert problems == [], "\n".join(problems)


@pytest.mark.browser
def test_the_answers_of_forms_fit(open_page: OpenPage, long_names: Client) -> None:
    tab = open_page()
    tab.goto("/admin/resty_limits/limitpolicy/")
    tab.locator("[name=_selected_action]").first.check()
    tab.locator("select[name=action]").select_option("shadow")
    tab.locator(".actions button[name=index]").click()
    tab.get_by_role("heading", name="Change to “shadow”").wait_for()
    problems = [*page_problems(tab), *accessibility_problems(open_page, tab)]
    for page in ("limitpolicy/", "limitpolicy/add/", "limitoverride/add/", f"limitpolicy/limits/key/?key={txid()}"):
        problems += layout_problems(tab, f"/admin/resty_limits/{page}")
        problems += accessibility_problems(open_page, tab)
    tab.emulate_media(color_scheme="light")
    tab.goto(path("job"))
    tab.get_by_label("Select all rows on this page").check()
    tab.get_by_label("Action", exact=True).select_option("move")
    tab.get_by_role("button", name="Go", exact=True).click()
    tab.locator("input[type=submit].default").wait_for()
    problems += page_problems(tab)
    assert problems == [], "\n".join(problems)


@pytest.mark.browser
def test_a_page_that_is_not_updated_stays_readable(open_page: OpenPage, long_names: Client) -> None:
    tab = open_page(dark=True)
    tab.goto("/admin/resty_cache/cache/default/change/")
    tab.evaluate("document.getElementById('content').toggleAttribute('data-resty-stale', true)")
    assert open_page.violations(tab, runOnly=["color-contrast"]) == []
