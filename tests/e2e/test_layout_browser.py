"""The layout of the admin's pages with long names: nothing overflows, is cut off or is hard to see."""

from __future__ import annotations

from typing import Any, Final

import pytest
from django.test import Client as Browser

from resty_django.cache import mlcaches
from resty_django.qless import Client
from resty_django.txid import txid
from tests.e2e.browser import OpenPage
from tests.e2e.layout import GROUP, SEEDS, our_pages, page_problems, template_names
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
@pytest.mark.parametrize(("language", "direction"), [("ar", "rtl"), ("de", "ltr")])
def test_pages_fit_from_right_to_left_and_with_long_words(
    language: str, direction: str, open_page: OpenPage, long_names: Client, settings: Any
) -> None:
    settings.LANGUAGE_CODE = language
    tab, problems = open_page(), []
    for url in SEEDS:
        problems += layout_problems(tab, url)
        assert tab.evaluate("getComputedStyle(document.documentElement).direction") == direction
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
def test_the_responses_to_forms_fit(open_page: OpenPage, long_names: Client) -> None:
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


MOVES: Final = """() => [...document.querySelectorAll(":is(.resty-page, #changelist) *")].filter((node) => {
    const style = getComputedStyle(node);
    return parseFloat(style.transitionDuration) || parseFloat(style.animationDuration);
}).map((node) => node.outerHTML.slice(0, 80))"""
LISTS: Final = (
    *(path(model) for model in ("queue", "worker", "recurringjob", "failuregroup", "jobclass", "tag", "option")),
    f"{path('job')}?state=failed",
    path("failuregroup", GROUP),
    "/admin/resty_cache/cache/",
    "/admin/resty_django/shareddictionary/",
    "/admin/resty_ids/idcounter/",
    "/admin/resty_limits/keyban/",
    "/admin/resty_limits/limitoverride/",
)


def tabs_to_first_row(tab: Any, url: str) -> int:
    """Press the tab key until the focus is in a row, and Enter on our link that skips to the rows."""
    tab.goto(url)
    for presses in range(1, 200):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.matches('tbody *')"):
            return presses
        if tab.evaluate("document.activeElement.matches('a[href=\"#resty-rows\"]')"):
            assert tab.locator(":focus").bounding_box()["width"] > 20, "the link is visible while it has the focus"
            tab.keyboard.press("Enter")
    pytest.fail(f"{url}: no row has the focus")


@pytest.mark.browser
def test_the_keyboard_reaches_the_first_row_as_soon_as_in_a_list_of_django(
    open_page: OpenPage, long_names: Client
) -> None:
    tab = open_page(width=1280)
    most = tabs_to_first_row(tab, "/admin/auth/user/") + 5
    presses = {url: tabs_to_first_row(tab, url) for url in LISTS}
    assert {url: count for url, count in presses.items() if count > most} == {}, most


@pytest.mark.browser
def test_nothing_moves_if_the_browser_asks_for_reduced_motion(open_page: OpenPage, long_names: Client) -> None:
    tab = open_page()
    tab.emulate_media(reduced_motion="reduce")
    for url in (path("queue"), path("job", "body"), "/admin/resty_ids/idcounter/", "/admin/resty_cache/cache/"):
        tab.goto(url)
        assert tab.evaluate(MOVES) == [], url


@pytest.mark.browser
def test_the_page_of_a_busy_cache_is_short(open_page: OpenPage, long_names: Client) -> None:
    cache = mlcaches["pages"]
    for number in range(60):
        for _ in range(2):
            cache.get(f"/shop/products/{number}/", lambda: "page", tags=(f"product:{number}",))
            cache.invalidate_tags(f"product:{number}")
    tab = open_page(width=1280)
    tab.goto("/admin/resty_cache/cache/pages/change/")
    assert tab.evaluate("document.documentElement.scrollHeight") <= 2500
    tab.locator("#tags").get_by_role("link", name="Next").click()
    tab.get_by_text("9 to 16 of 50").wait_for()
