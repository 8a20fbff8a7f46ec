"""The layout of the admin's pages with long names: nothing overflows, is cut off or is hard to see."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import pytest
from django.test import Client as Browser

from resty_django.admin.statistics import Key
from resty_django.qless import Client
from resty_django.qless.clients.default import default_client
from tests.e2e.browser import OpenPage
from tests.e2e.layout import CHECK, GROUP, KEY, POLICY, QUEUE, Page, crawl, fill_site, template_names
from tests.integration.qless.admin.tools import path

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(600)]

WIDTHS: Final = (1280, 390)
SEEDS: Final = [
    "/admin/",
    "/admin/resty_django/overview/",
    path("job", "part-01-of-the-customer-import"),
    path("queue", QUEUE),
    path("job", "body"),
    path("failuregroup", GROUP),
    path("job", "never"),
    "/admin/resty_cache/cache/pages/change/?find=",
    f"/admin/resty_cache/cache/pages/change/?{urlencode({'key': KEY})}",
    "/admin/resty_django/shareddictionary/default/change/?find=",
    f"/admin/resty_django/shareddictionary/default/change/?{urlencode({'key': KEY})}",
    f"/admin/resty_limits/limitpolicy/limits/key/?{urlencode({'key': KEY})}",
    f"/admin/resty_limits/limitpolicy/limits/key/reset/?{urlencode({'limit': POLICY, 'k': Key.of(KEY).token})}",
]
"""Pages where the crawl begins."""
NOT_LINKED: Final = {
    "admin/resty_qless/down.html",
    "admin/resty_qless/missing.html",
    "admin/resty_limits/limitpolicy/mode.html",
    "admin/resty_limits/limitpolicy/policy_test.html",
}
"""Templates of pages that no link leads to: what a form returns, and a site without a server or a package."""


@pytest.fixture
def long_names(limits_site: dict[str, Any], settings: Any, valkey: Any, valkey_url: str) -> Client:
    """Return the queue of a site with long names in all apps."""
    settings.RESTY_DJANGO = {
        **limits_site,
        "QLESS": {"URL": valkey_url, "WORKER_NAME": f"{QUEUE}-worker.example.org-12345"},
        "CACHES": {"pages": {}},
    }
    client = default_client()
    fill_site(client)
    return client


def our_pages(browser: Browser, per_view: int) -> list[Page]:
    """Return the pages that have a template of ours."""
    return [page for page in crawl(browser, SEEDS, per_view) if page.templates]


def layout_problems(tab: Any, url: str) -> list[str]:
    """Open a page in light, and return what is wrong with its layout."""
    tab.emulate_media(color_scheme="light")
    tab.goto(url)
    return page_problems(tab)


def page_problems(tab: Any) -> list[str]:
    """Return what is wrong with the layout of an open page at all widths."""
    problems = []
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        problems += [f"{tab.url} at {width} px {problem}" for problem in tab.evaluate(CHECK)]
    return problems


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


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_pages_fit_and_are_accessible(open_page: OpenPage, admin_client: Browser, long_names: Client) -> None:
    tab, problems = open_page(), []
    for page in our_pages(admin_client, per_view=50):
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
    problems = page_problems(tab)
    tab.goto(path("job"))
    tab.get_by_label("Select all rows on this page").check()
    tab.get_by_label("Action for selected jobs").select_option("move")
    tab.get_by_role("button", name="Go", exact=True).click()
    tab.locator("input[type=submit].default").wait_for()
    problems += page_problems(tab)
    assert problems == [], "\n".join(problems)
